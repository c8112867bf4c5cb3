#include "bench/cpu/op_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "bench/material.h"
#include "bench/timer.h"
#include "bench/work.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/gated_delta/gated_delta.h"
#include "engine/ops/linear/linear.h"

namespace lockstep {
namespace {

constexpr Codec kCodecs[] = {Codec::f32,       Codec::bf16,  Codec::f16, Codec::fp8,
                             Codec::fp8_block, Codec::nvfp4, Codec::int4};
constexpr int64_t kDecodeTokens[] = {1, 2, 3, 4};
constexpr int64_t kPrefillTokens[] = {64, 512};
constexpr TimerOptions kOpTimer{.n_samples = 5, .min_sample_s = 0.002};

struct MatrixShape {
  std::string name;
  int64_t n_rows;
  int64_t n_cols;
};

struct HeadShape {
  std::string name;
  int n_heads, n_kv_heads, head_dim;
  int64_t depth;  // positions in the cache before the tokens of a decode
};

struct GdnShape {
  std::string name;
  int n_k_heads, n_v_heads, dk, dv;
};

std::vector<MatrixShape> matrix_shapes(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  return {{"golden gate/up", config.intermediate_size, hidden},
          {"golden down", hidden, config.intermediate_size},
          {"golden head", config.vocab_size, hidden},
          {"27B gate/up", 17408, 5120},
          {"27B down", 5120, 17408},
          {"27B GDN qkvz", 16384, 5120}};
}

std::vector<HeadShape> head_shapes(const ModelConfig& config) {
  return {{"golden", config.n_heads, config.n_kv_heads, config.head_dim, 2462},
          {"27B", 24, 4, 256, 8192}};
}

std::vector<GdnShape> gdn_shapes(const ModelConfig& config) {
  const GdnConfig& gdn = config.gdn;
  return {{"golden", gdn.n_k_heads, gdn.n_v_heads, gdn.k_head_dim, gdn.v_head_dim},
          {"27B", 16, 48, 128, 128}};
}

// Measures one op of one run and books it against its roofs.
class OpRun {
 public:
  OpRun(ThreadPool& pool, RoofTable& roofs, Results& results)
      : pool_(pool), roofs_(roofs), results_(results) {}

  ThreadPool& pool() { return pool_; }

  void decode(const std::string& name, int64_t n_tokens, int64_t n_bytes,
              const std::function<void()>& body) {
    const double rate = static_cast<double>(n_bytes) / median(time_calls(kOpTimer, body));
    results_.add(key(name, n_tokens, "GB/s", Roof::read), rate / 1e9,
                 rate / roofs_.read(n_bytes, pool_));
  }

  void prefill(const std::string& name, int64_t n_tokens, int64_t flops,
               const std::function<void()>& body) {
    const double rate = static_cast<double>(flops) / median(time_calls(kOpTimer, body));
    results_.add(key(name, n_tokens, "GFLOP/s", Roof::fma), rate / 1e9, rate / roofs_.fma(pool_));
  }

 private:
  Series key(const std::string& name, int64_t n_tokens, const char* unit, Roof roof) const {
    Series series;
    series.section = "op";
    series.name = name;
    series.n_threads = pool_.n_threads();
    series.n_tokens = n_tokens;
    series.unit = unit;
    series.roof = roof;
    return series;
  }

  ThreadPool& pool_;
  RoofTable& roofs_;
  Results& results_;
};

void bench_linear(OpRun& run, Codec codec, const MatrixShape& shape, int64_t max_bytes) {
  // Rows are alike, so a matrix that would need too much memory is measured by its first rows.
  const int64_t row_bytes = matrix_bytes(codec, 128, shape.n_cols, kBenchInt4Group) / 128;
  const int64_t n_rows = std::clamp<int64_t>(max_bytes / row_bytes / 128 * 128, 128, shape.n_rows);
  const BenchMatrix matrix(codec, n_rows, shape.n_cols, 1);
  const std::string name =
      fmt::format("linear {} {} {}x{}", codec_name(codec), shape.name, n_rows, shape.n_cols);
  const int64_t most = *std::max_element(std::begin(kPrefillTokens), std::end(kPrefillTokens));
  const std::vector<float> x = bench_floats(most * shape.n_cols, 2);
  std::vector<float> out(static_cast<size_t>(most * n_rows));
  const auto product = [&](int64_t n_tokens) {
    linear({matrix.view(), x.data(), shape.n_cols, out.data(), n_rows, n_tokens, Rounding::bf16},
           run.pool());
  };
  const int64_t n_bytes = matrix_bytes(codec, n_rows, shape.n_cols, kBenchInt4Group);
  for (const int64_t n : kDecodeTokens) run.decode(name, n, n_bytes, [&] { product(n); });
  for (const int64_t n : kPrefillTokens) {
    run.prefill(name, n, linear_flops(n_rows, shape.n_cols, n), [&] { product(n); });
  }
}

void bench_attention(OpRun& run, KvType type, const char* type_name, const HeadShape& shape) {
  constexpr int64_t kPrefill = kPrefillTokens[1];
  const int64_t width = int64_t{shape.n_heads} * shape.head_dim;
  const BenchCache cache(type, shape.n_kv_heads, shape.head_dim, shape.depth + kPrefill);
  const std::vector<float> q = bench_floats(kPrefill * width, 4);
  std::vector<float> out(q.size());
  const auto attend = [&](int64_t first, int64_t n_tokens) {
    AttentionArgs args{};
    args.q = args.gate = q.data();
    args.q_stride = args.gate_stride = args.out_stride = width;
    args.q_head_stride = args.gate_head_stride = shape.head_dim;
    args.out = out.data();
    args.cache = cache.view();
    args.first_position = first;
    args.n_tokens = n_tokens;
    args.n_heads = shape.n_heads;
    args.scale = 0.0625f;
    args.rounding = Rounding::bf16;
    attention(args, run.pool());
  };
  const std::string name = fmt::format("attention {} {} at {}", type_name, shape.name, shape.depth);
  const int64_t n_bytes = kv_bytes(type, shape.n_kv_heads, shape.head_dim, shape.depth);
  for (const int64_t n : kDecodeTokens) {
    run.decode(name, n, n_bytes, [&] { attend(shape.depth - n, n); });
  }
  for (const int64_t n : kPrefillTokens) {
    run.prefill(name, n, attention_flops(shape.n_heads, shape.head_dim, shape.depth, n),
                [&] { attend(shape.depth, n); });
  }
}

void bench_gated_delta(OpRun& run, const GdnShape& shape) {
  constexpr int64_t kMost = kPrefillTokens[1];
  const int64_t qk_width = int64_t{shape.n_k_heads} * shape.dk;
  const int64_t v_width = int64_t{shape.n_v_heads} * shape.dv;
  const std::vector<float> q = bench_floats(kMost * qk_width, 5);
  const std::vector<float> k = bench_floats(kMost * qk_width, 6);
  const std::vector<float> v = bench_floats(kMost * v_width, 7);
  const std::vector<float> log_decay(static_cast<size_t>(kMost * shape.n_v_heads), -0.05f);
  const std::vector<float> beta(static_cast<size_t>(kMost * shape.n_v_heads), 0.5f);
  std::vector<float> out(v.size());
  std::vector<float> state(static_cast<size_t>(v_width * shape.dk));
  GatedDeltaArgs args{
      q.data(),     k.data(),   v.data(),      qk_width, v_width, log_decay.data(), beta.data(),
      state.data(), out.data(), v_width,       0,        0,       shape.n_k_heads,  shape.n_v_heads,
      shape.dk,     shape.dv,   Rounding::bf16};
  const auto n_state_bytes = static_cast<int64_t>(state.size() * sizeof(float));
  for (const int64_t n : kDecodeTokens) {
    args.n_tokens = n;
    run.decode("gated delta recurrent " + shape.name, n, n_state_bytes,
               [&] { gated_delta_recurrent(args, run.pool()); });
  }
  for (const int64_t n : kPrefillTokens) {
    args.n_tokens = n;
    run.prefill("gated delta chunked " + shape.name, n,
                gated_delta_flops(shape.n_v_heads, shape.dk, shape.dv, n),
                [&] { gated_delta_chunked(args, run.pool()); });
  }
}

bool selected(const CpuBenchSettings& settings, Codec codec) {
  const auto& names = settings.codecs;
  return names.empty() || std::find(names.begin(), names.end(), codec_name(codec)) != names.end();
}

}  // namespace

void run_op_bench(const CpuBenchSettings& settings, const ModelConfig& golden, ThreadPool& pool,
                  RoofTable& roofs, Results& results) {
  OpRun run(pool, roofs, results);
  for (const Codec codec : kCodecs) {
    if (!selected(settings, codec)) continue;
    for (const MatrixShape& shape : matrix_shapes(golden)) {
      bench_linear(run, codec, shape, settings.max_matrix_bytes);
    }
  }
  for (const HeadShape& shape : head_shapes(golden)) {
    bench_attention(run, KvType::bf16, "bf16", shape);
    bench_attention(run, KvType::int8, "int8", shape);
  }
  for (const GdnShape& shape : gdn_shapes(golden)) bench_gated_delta(run, shape);
}

}  // namespace lockstep
