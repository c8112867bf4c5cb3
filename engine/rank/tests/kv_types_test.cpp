// KV cache types: what INT8 costs in perplexity, what the Hadamard rotation buys, and 64-bit page
// tables.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>

#include "engine/base/philox.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/kv_write/kv_write.h"
#include "engine/rank/tests/golden_engine.h"

namespace lockstep::testing {
namespace {

// Mean negative log-probability of the tokens that follow the first of `text`, by teacher forcing.
double mean_nll(RankEngine& engine, const std::vector<int32_t>& text) {
  Request request = greedy_request("text", {text.front()}, static_cast<int64_t>(text.size()) - 1);
  request.force_ids.assign(text.begin() + 1, text.end());
  request.n_logits = 1;
  const RequestResult result = engine.run({request})[0];
  double sum = 0.0;
  for (const StepLogits& step : result.logits) sum += step.log_sum_exp - double{step.chosen_value};
  return sum / static_cast<double>(result.logits.size());
}

// 4,103 tokens of generated material: code and Chinese prose.
std::vector<int32_t> material() {
  std::vector<int32_t> text = oracle_prompt("code-3k");
  const std::vector<int32_t> more = oracle_prompt("zh-2k");
  text.insert(text.end(), more.begin(), more.end());
  return text;
}

EngineOptions kv_options(KvType type, bool rotate) {
  EngineOptions options;
  options.kv_type = type;
  options.rotate_keys = rotate;
  options.max_context = 4224;
  return options;
}

double golden_nll(KvType type, bool rotate) {
  SoloEngine engine(kv_options(type, rotate));
  return mean_nll(engine.get(), material());
}

// A stored INT8 value is off by at most half a step, s/2 = max|x| / 254 of its group of 64, a bf16
// value by 2^-9 of itself. With groups whose largest value is about three times their root mean
// square, the relative L2 error of an INT8 vector is 3/254/sqrt(3) = 0.7 %, of a bf16 one
// 2^-9/sqrt(3) = 0.11 %: six times bf16's own. The bf16 run's logits lie 1 % (final_norm noise of
// the oracle) from float32; KV is one of some ten rounding points of equal size, so that INT8 adds
// at most 6/sqrt(10) = 2 times that noise. Logit noise of standard deviation sigma costs sigma^2/2
// of mean log-probability; bf16's sigma here is about 0.05 (margins move by 0.08), so 0.1^2/2 =
// 0.005 nats for INT8, and as much again for the bias of one text of 4,000 tokens (0.1/sqrt(4000) =
// 0.0016, three of them).
constexpr double kInt8NllBound = 0.01;

TEST(KvTypes, Int8PerplexityIsWithinItsBound) {
  const double bf16 = golden_nll(KvType::bf16, true);
  const double fp16 = golden_nll(KvType::fp16, true);
  const double int8 = golden_nll(KvType::int8, true);
  const double int8_plain = golden_nll(KvType::int8, false);
  RecordProperty("nll_bf16", std::to_string(bf16));
  RecordProperty("nll_int8", std::to_string(int8));
  RecordProperty("nll_int8_without_hadamard", std::to_string(int8_plain));
  std::printf("mean nll: bf16 %.5f fp16 %.5f int8 %.5f int8 without Hadamard %.5f\n", bf16, fp16,
              int8, int8_plain);
  EXPECT_LT(std::abs(fp16 - bf16), kInt8NllBound);
  EXPECT_LT(std::abs(int8 - bf16), kInt8NllBound);
  EXPECT_LT(std::abs(int8 - bf16), std::abs(int8_plain - bf16) + kInt8NllBound / 4);
}

// Outlier channels in K (by k_norm) that q_norm takes back: the function is the same, INT8 is not.
TEST(KvTypes, HadamardHelpsAgainstOutlierChannels) {
  const GoldenModel& golden = golden_model();
  RankWeights weights = load_rank_weights(golden.config, {&golden.checkpoint, false}, 1, 0);
  // Beyond the rotary dimensions, so that RoPE does not mix the channels with others.
  for (LayerWeights& layer : weights.layers) {
    if (layer.kind != LayerKind::full_attention) continue;
    for (const size_t channel : {80u, 131u, 190u, 250u}) {
      layer.attention.k_norm[channel] = (1.0f + layer.attention.k_norm[channel]) * 32.0f - 1.0f;
      layer.attention.q_norm[channel] = (1.0f + layer.attention.q_norm[channel]) / 32.0f - 1.0f;
    }
  }
  const auto text = oracle_prompt("zh-2k");
  const auto nll = [&](KvType type, bool rotate) {
    ThreadPool pool(1);
    const auto comm = make_single_rank_communicator();
    RankEngine engine(golden.config, weights, kv_options(type, rotate), *comm, pool);
    return mean_nll(engine, text);
  };
  const double exact = nll(KvType::bf16, true);
  const double rotated = std::abs(nll(KvType::int8, true) - exact);
  const double plain = std::abs(nll(KvType::int8, false) - exact);
  std::printf("outliers: nll moves by %.5f with Hadamard, %.5f without\n", rotated, plain);
  EXPECT_LT(rotated, plain);
}

// Page ids whose byte offset does not fit into 32 bits, and the last position of a full context.
TEST(KvTypes, PagesBeyondFourGigabytes) {
  constexpr int kHeads = 4;
  constexpr int kHeadDim = 256;
  constexpr int64_t kPages = 40'000;
  const int64_t page_bytes = kv_page_bytes(KvType::bf16, kHeads, kHeadDim);
  ASSERT_GT(kPages * page_bytes, int64_t{1} << 33);
  const auto n_bytes = static_cast<size_t>(kPages * page_bytes);
  void* memory = ::mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const std::vector<uint32_t> table = {39'999, 0, 20'000};
  const KvView view{KvType::bf16, kHeads, kHeadDim, static_cast<std::byte*>(memory), table.data()};
  std::vector<float> row(kHeads * kHeadDim);
  for (int64_t position = 0; position < 3 * kPageTokens; ++position) {
    std::fill(row.begin(), row.end(), static_cast<float>(position));
    kv_write({view, row.data(), row.data(), kHeads * kHeadDim, kHeads * kHeadDim, position, 1});
  }
  std::vector<float> read(kHeadDim);
  for (int64_t position = 0; position < 3 * kPageTokens; ++position) {
    for (int head = 0; head < kHeads; ++head) {
      for (const bool value : {false, true}) {
        kv_read(view, value, head, position, read.data());
        ASSERT_EQ(read[0], static_cast<float>(position));
        ASSERT_EQ(read[kHeadDim - 1], static_cast<float>(position));
      }
    }
  }
  ::munmap(memory, n_bytes);
}

// A narrow cache of 262,144 positions: one key dominates, wherever it lies, and attention finds it.
TEST(KvTypes, AttentionOverAFullContext) {
  constexpr int64_t kContext = 262'144;
  constexpr int kHeadDim = 16;
  const int64_t n_pages = kContext / kPageTokens;
  std::vector<std::byte> pool(
      static_cast<size_t>(n_pages * kv_page_bytes(KvType::bf16, 1, kHeadDim)));
  std::vector<uint32_t> table(static_cast<size_t>(n_pages));
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint32_t>(table.size() - 1 - i);
  const KvView view{KvType::bf16, 1, kHeadDim, pool.data(), table.data()};
  std::vector<float> k(kHeadDim, 0.0f);
  std::vector<float> v(kHeadDim, 1.0f);
  for (int64_t position = 0; position < kContext; ++position) {
    kv_write({view, k.data(), v.data(), kHeadDim, kHeadDim, position, 1});
  }
  ThreadPool pool_of_threads(2);
  std::vector<float> q(kHeadDim, 8.0f);
  std::vector<float> out(kHeadDim);
  const auto attend = [&](int64_t position) {
    attention({q.data(), kHeadDim, nullptr, 0, kHeadDim, kHeadDim, out.data(), kHeadDim, view,
               position, 1, 1, 1.0f, Rounding::none},
              pool_of_threads);
    return out[5];
  };
  EXPECT_FLOAT_EQ(attend(kContext - 1), 1.0f);
  for (const int64_t needle : {int64_t{0}, int64_t{65'535}, int64_t{65'536}, kContext - 1}) {
    k.assign(kHeadDim, 2.0f);  // score 256: the weight of all others underflows
    v.assign(kHeadDim, 77.0f);
    kv_write({view, k.data(), v.data(), kHeadDim, kHeadDim, needle, 1});
    EXPECT_FLOAT_EQ(attend(kContext - 1), 77.0f) << needle;
    if (needle > 0) {
      EXPECT_FLOAT_EQ(attend(needle - 1), 1.0f) << needle;
    }
    k.assign(kHeadDim, 0.0f);
    v.assign(kHeadDim, 1.0f);
    kv_write({view, k.data(), v.data(), kHeadDim, kHeadDim, needle, 1});
  }
}

}  // namespace
}  // namespace lockstep::testing
