// Sampling on a card: the CPU's tokens over many seeds.
#include "engine/ops/sample/cuda/sample_cuda.h"

#include "engine/base/philox.h"
#include "engine/ops/argmax/argmax.h"
#include "engine/ops/common/cuda/row_test_util.h"
#include "engine/ops/common/tolerance.h"

namespace lockstep {
namespace {

using namespace op_test;

struct Request {
  SamplingParams params;
  TokenHistory history;
  int64_t position = 0;
};

// A peak or two over a broad field, as logits look; coarse: bfloat16, so that ties abound.
std::vector<float> random_logits(uint64_t seed, int64_t n, bool coarse) {
  std::vector<float> x = random_floats(seed, n, 1.0f);
  for (float& value : x) value = 12.0f * value * value * value;
  PhiloxStream random(seed, 9);
  for (int i = 0; i < 12; ++i) {
    x[random.next_below(static_cast<uint32_t>(n))] = 10.0f + 6.0f * random.next_uniform();
  }
  if (coarse) x = floats_of_bf16(bf16_of_floats(x));
  return x;
}

struct Outcome {
  std::vector<SampleResult> results;
  std::vector<float> logits_after;
};

// All requests over the same logits (one column each, or one column that all share).
Outcome run(const std::vector<float>& logits, int64_t n_live, const std::vector<Request>& requests,
            int n_top, bool shared_logits) {
  const auto n = static_cast<int64_t>(logits.size());
  const auto n_columns = static_cast<int>(requests.size());
  const int64_t stride = shared_logits ? 0 : (n + 3) / 4 * 4;
  std::vector<float> all(static_cast<size_t>((n + 3) / 4 * 4), NAN);
  std::copy(logits.begin(), logits.end(), all.begin());
  const std::vector<float> one = all;
  for (int c = 1; c < n_columns && !shared_logits; ++c)
    all.insert(all.end(), one.begin(), one.end());
  SampleBatch batch;
  for (const Request& r : requests) batch.add(r.params, r.history, n_live, r.position);
  const GuardedBytes logits_card(all);
  const GuardedBytes columns(batch.columns());
  const GuardedBytes adjustments(batch.adjustments());
  const GuardedBytes workspace(
      sample_workspace_bytes(n, n_columns, static_cast<int64_t>(batch.adjustments().size())));
  const GuardedBytes out(std::vector<SampleResult>(requests.size()));
  SampleCudaArgs args{.batch = batch};
  args.logits = logits_card.as<float>();
  args.stride = stride;
  args.n_vocab = n;
  args.n_live = n_live;
  args.columns = columns.as<SampleColumn>();
  args.adjustments = adjustments.as<LogitAdjustment>();
  args.n_top = n_top;
  args.workspace = workspace.data();
  args.out = out.as<SampleResult>();
  sample_cuda(args, card_stream());
  EXPECT_TRUE(logits_card.walls_intact() && workspace.walls_intact() && out.walls_intact());
  Outcome result{out.values<SampleResult>(), logits_card.values<float>()};
  EXPECT_TRUE(same_bits(result.logits_after, all)) << "logits were not restored";
  return result;
}

// Whether u * total, or the threshold of top_p, lies so near to a border between two candidates
// that the card may choose otherwise. The numbers are those of ops/sample.
bool near_border(const SampleArgs& args) {
  SamplingParams everything = args.params;
  everything.top_p = 1.0f;
  const SampleArgs all{args.logits, args.n_vocab, args.n_live,
                       everything,  args.history, args.position};
  double sum = 0;
  std::vector<double> through;
  for (const Candidate& c : sampling_candidates(all)) through.push_back(sum += c.mass);
  const double border = tolerance::sample_border(args.n_live, sum);
  const PhiloxCounter bits = philox4x32(
      {static_cast<uint32_t>(args.position), 0, 0, 0},
      {static_cast<uint32_t>(args.params.seed), static_cast<uint32_t>(args.params.seed >> 32)});
  const double u = static_cast<double>((uint64_t{bits[0]} << 21) ^ (bits[1] >> 11)) * 0x1p-53;
  double kept = 0;
  for (const Candidate& c : sampling_candidates(args)) kept += c.mass;
  for (const double at : through) {
    if (std::fabs(at - u * kept) <= border) return true;
    if (args.params.top_p < 1.0f && std::fabs(at - args.params.top_p * sum) <= border) return true;
  }
  return false;
}

int expect_cpu_tokens(const std::vector<float>& logits, int64_t n_live,
                      const std::vector<Request>& requests, bool exact, bool shared_logits,
                      const std::string& what) {
  const Outcome got = run(logits, n_live, requests, 0, shared_logits);
  int n_different = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Request& r = requests[i];
    const SampleArgs args{logits.data(), static_cast<int64_t>(logits.size()),
                          n_live,        r.params,
                          r.history,     r.position};
    const int32_t want = sample(args);
    const int32_t token = got.results[i].token;
    if (token >= 0) {
      EXPECT_EQ(got.results[i].chosen_value, logits[static_cast<size_t>(token)]) << what;
    }
    if (token == want) continue;
    ++n_different;
    EXPECT_TRUE(!exact && near_border(args))
        << what << ": request " << i << " gives " << token << " instead of " << want;
  }
  return n_different;
}

std::vector<Request> with_seeds(const SamplingParams& params, int n, uint64_t first_seed) {
  std::vector<Request> requests;
  for (int i = 0; i < n; ++i) {
    Request r;
    r.params = params;
    r.params.seed = first_seed + 0x9E3779B97F4A7C15ull * static_cast<uint64_t>(i);
    r.position = 17 * i;
    requests.push_back(r);
  }
  return requests;
}

SamplingParams sampling(float temperature, int32_t top_k, float top_p, float min_p) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.min_p = min_p;
  return params;
}

class SampleCuda : public testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_CARD(); }
};

TEST_F(SampleCuda, ShortListsGiveExactlyTheCpusTokens) {
  for (const bool coarse : {false, true}) {
    const std::vector<float> logits = random_logits(3, 5001, coarse);
    for (const SamplingParams& params :
         {sampling(1.0f, 20, 0.95f, 0.0f), sampling(0.7f, 20, 0.8f, 0.0f),
          sampling(1.5f, 64, 1.0f, 0.0f), sampling(1.0f, 1, 1.0f, 0.0f),
          sampling(2.0f, 40, 0.9f, 0.05f), sampling(0.05f, 64, 1.0f, 0.2f),
          sampling(8.0f, 64, 0.5f, 0.0f)}) {
      expect_cpu_tokens(logits, 5001, with_seeds(params, 200, 1), true, true, "short list");
    }
  }
}

TEST_F(SampleCuda, TiesAtTheEndOfAListGoToTheLowestIds) {
  std::vector<float> logits(6000, 1.0f);
  for (const size_t id : {size_t{2047}, size_t{2048}, size_t{5999}}) logits[id] = 2.0f;
  expect_cpu_tokens(logits, 6000, with_seeds(sampling(1.0f, 2, 1.0f, 0.0f), 100, 1), true, true,
                    "two of three");
  expect_cpu_tokens(logits, 6000, with_seeds(sampling(1.0f, 40, 1.0f, 0.0f), 300, 2), true, true,
                    "40 of 6000");
  expect_cpu_tokens(logits, 3, with_seeds(sampling(1.0f, 40, 1.0f, 0.0f), 50, 3), true, true,
                    "fewer than top_k");
}

TEST_F(SampleCuda, WithoutAShortListTokensAreTheCpusBeyondTheBorder) {
  int n_different = 0;
  int n_all = 0;
  for (const bool coarse : {false, true}) {
    const std::vector<float> logits = random_logits(4, 5001, coarse);
    for (const SamplingParams& params :
         {sampling(1.0f, 0, 1.0f, 0.0f), sampling(1.0f, 0, 0.95f, 0.0f),
          sampling(0.7f, 100, 0.9f, 0.0f), sampling(1.0f, 0, 1.0f, 0.05f),
          sampling(5.0f, 0, 0.99f, 0.0f), sampling(3.0f, 1000, 1.0f, 0.001f),
          sampling(0.02f, 3000, 1.0f, 0.0f)}) {
      n_different +=
          expect_cpu_tokens(logits, 5001, with_seeds(params, 128, 1), false, true, "no short list");
      n_all += 128;
    }
  }
  std::printf("%d of %d tokens differ, all of them at a border\n", n_different, n_all);
  EXPECT_LE(n_different, n_all / 100);
}

TEST_F(SampleCuda, TheWholeVocabulary) {
  const std::vector<float> logits = random_logits(5, 248320, true);
  expect_cpu_tokens(logits, 248320, with_seeds(sampling(1.0f, 20, 0.95f, 0.0f), 8, 1), true, true,
                    "248320, short list");
  expect_cpu_tokens(logits, 248077, with_seeds(sampling(1.0f, 0, 0.95f, 0.0f), 8, 2), false, true,
                    "248320, no short list");
  expect_cpu_tokens(logits, 248077, with_seeds(SamplingParams{}, 2, 3), true, true,
                    "248320, greedy");
}

// Different columns in one launch, penalties and bias, dead rows above n_live.
TEST_F(SampleCuda, ColumnsOfAllKindsWithPenalties) {
  std::vector<float> logits = random_logits(6, 4099, false);
  logits[4098] = 50.0f;  // dead
  std::vector<Request> requests;
  for (const SamplingParams& params :
       {sampling(0.0f, 0, 1.0f, 0.0f), sampling(1.0f, 20, 0.95f, 0.0f),
        sampling(1.0f, 0, 0.9f, 0.0f), sampling(2.0f, 100, 1.0f, 0.01f)}) {
    for (const int kind : {0, 1, 2, 3}) {
      Request r = with_seeds(params, 1, requests.size()).front();
      r.params.presence_penalty = kind == 1 ? 1.5f : 0.0f;
      r.params.frequency_penalty = kind == 1 ? 0.3f : 0.0f;
      r.params.repetition_penalty = kind == 2 ? 1.3f : 1.0f;
      const int32_t best = static_cast<int32_t>(argmax(logits.data(), 4098));
      if (kind == 3) r.params.logit_bias = {{best, -20.0f}, {7, 9.5f}, {5000, 3.0f}, {-1, 1.0f}};
      r.history.prompt_counts = {{best, 1}, {3, 2}, {4098, 1}};
      r.history.output_counts = {{best, 2}, {9, 0}, {11, 4}};
      requests.push_back(r);
    }
  }
  expect_cpu_tokens(logits, 4098, requests, true, false, "columns of all kinds");
}

TEST_F(SampleCuda, NanStops) {
  std::vector<float> logits = random_logits(7, 3000, false);
  logits[2500] = NAN;
  const std::vector<Request> requests = {with_seeds(SamplingParams{}, 1, 1).front(),
                                         with_seeds(sampling(1, 20, 1, 0), 1, 1).front(),
                                         with_seeds(sampling(1, 0, 1, 0), 1, 1).front()};
  for (const SampleResult& r : run(logits, 3000, requests, 0, false).results) {
    EXPECT_EQ(r.token, -1);
  }
  // Beyond the live rows it is nobody's business.
  for (const SampleResult& r : run(logits, 2500, requests, 0, false).results) EXPECT_GE(r.token, 0);
}

TEST_F(SampleCuda, LargestLogitsAndTheirSum) {
  for (const int64_t n : {5, 2048, 2049, 50000}) {
    const std::vector<float> logits = random_logits(8, n, true);
    const std::vector<Request> requests = with_seeds(sampling(1.0f, 20, 1.0f, 0.0f), 2, 1);
    for (const int n_top : {1, 20, kMostTop}) {
      const Outcome got = run(logits, n, requests, n_top, false);
      std::vector<int32_t> order(static_cast<size_t>(n));
      for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
      });
      const double want = log_sum_exp(logits.data(), n);
      for (const SampleResult& r : got.results) {
        EXPECT_NEAR(r.log_sum_exp, want, 2 * tolerance::log_sum_exp_absolute(n, want));
        for (size_t i = 0; i < static_cast<size_t>(std::min<int64_t>(n_top, n)); ++i) {
          EXPECT_EQ(r.top_ids[i], order[i]) << n << ", place " << i;
          EXPECT_EQ(r.top_values[i], logits[static_cast<size_t>(order[i])]);
        }
      }
    }
  }
}

// A column's token does not depend on the other columns of the launch.
TEST_F(SampleCuda, AColumnAloneIsThatColumnAmongOthers) {
  const std::vector<float> logits = random_logits(9, 30000, false);
  std::vector<Request> requests = with_seeds(sampling(2.0f, 0, 0.98f, 0.0f), 16, 1);
  const std::vector<Request> listed = with_seeds(sampling(2.0f, 50, 0.98f, 0.0f), 16, 1);
  requests.insert(requests.end(), listed.begin(), listed.end());
  const Outcome all = run(logits, 30000, requests, 0, true);
  for (size_t i = 0; i < requests.size(); i += 5) {
    EXPECT_EQ(run(logits, 30000, {requests[i]}, 0, true).results[0].token, all.results[i].token);
  }
}

}  // namespace
}  // namespace lockstep
