// Products with a stored matrix of every codec, for one token and for a prefill chunk.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <vector>

#include "bench/material.h"
#include "engine/ops/linear/linear.h"

namespace lockstep {
namespace {

constexpr int64_t kRows = 1536;
constexpr int64_t kCols = 5120;
constexpr int64_t kMostTokens = 64;

}  // namespace

TEST_CASE("linear", "[linear]") {
  ThreadPool pool(1);
  const std::vector<float> x = bench_floats(kMostTokens * kCols, 1);
  std::vector<float> out(kMostTokens * kRows);
  for (int i = 0; i <= static_cast<int>(Codec::int4); ++i) {
    const BenchMatrix matrix(static_cast<Codec>(i), kRows, kCols, 2);
    for (const int64_t n_tokens : {1, 4, 64}) {
      BENCHMARK(fmt::format("{} T={}", codec_name(matrix.view().codec), n_tokens)) {
        linear({matrix.view(), x.data(), kCols, out.data(), kRows, n_tokens, Rounding::bf16}, pool);
        return out[0];
      };
    }
  }
}

}  // namespace lockstep
