// Ops that read what a sequence left behind: attention over its cache, the gated delta rule.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <vector>

#include "bench/material.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/gated_delta/gated_delta.h"

namespace lockstep {

TEST_CASE("attention", "[attention]") {
  constexpr int kHeads = 12;
  constexpr int kKvHeads = 2;
  constexpr int kHeadDim = 256;
  constexpr int64_t kDepth = 2048;
  ThreadPool pool(1);
  const std::vector<float> q = bench_floats(64 * kHeads * kHeadDim, 1);
  std::vector<float> out(q.size());
  for (const KvType type : {KvType::bf16, KvType::int8}) {
    const BenchCache cache(type, kKvHeads, kHeadDim, kDepth + 64);
    for (const int64_t n_tokens : {1, 4, 64}) {
      AttentionArgs args{};
      args.q = q.data();
      args.q_stride = args.out_stride = kHeads * kHeadDim;
      args.q_head_stride = kHeadDim;
      args.out = out.data();
      args.cache = cache.view();
      args.first_position = kDepth;
      args.n_tokens = n_tokens;
      args.n_heads = kHeads;
      args.scale = 0.0625f;
      args.rounding = Rounding::bf16;
      BENCHMARK(
          fmt::format("{} at {} T={}", type == KvType::bf16 ? "bf16" : "int8", kDepth, n_tokens)) {
        attention(args, pool);
        return out[0];
      };
    }
  }
}

TEST_CASE("gated delta", "[gated_delta]") {
  constexpr int64_t kTokens = kGdnChunk;
  constexpr int kKHeads = 2;
  constexpr int kVHeads = 6;
  constexpr int kDim = 128;
  ThreadPool pool(1);
  const std::vector<float> qk = bench_floats(kTokens * kKHeads * kDim, 1);
  const std::vector<float> v = bench_floats(kTokens * kVHeads * kDim, 2);
  const std::vector<float> log_decay(kTokens * kVHeads, -0.05f);
  const std::vector<float> beta(kTokens * kVHeads, 0.5f);
  std::vector<float> state(kVHeads * kDim * kDim);
  std::vector<float> out(v.size());
  GatedDeltaArgs args{};
  args.q = args.k = qk.data();
  args.v = v.data();
  args.qk_stride = kKHeads * kDim;
  args.v_stride = args.out_stride = kVHeads * kDim;
  args.log_decay = log_decay.data();
  args.beta = beta.data();
  args.state = state.data();
  args.out = out.data();
  args.n_tokens = kTokens;
  args.n_k_heads = kKHeads;
  args.n_v_heads = kVHeads;
  args.dk = args.dv = kDim;
  args.rounding = Rounding::bf16;
  BENCHMARK("chunked, one chunk") {
    gated_delta_chunked(args, pool);
    return out[0];
  };
  args.n_tokens = 1;
  BENCHMARK("recurrent, one token") {
    gated_delta_recurrent(args, pool);
    return out[0];
  };
}

}  // namespace lockstep
