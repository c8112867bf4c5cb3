// Ops that go row by row over activations: what a layer does between its products.
#include <catch2/catch.hpp>
#include <vector>

#include "bench/material.h"
#include "engine/ops/rmsnorm/rmsnorm.h"

namespace lockstep {

TEST_CASE("rmsnorm", "[rows]") {
  constexpr int64_t kWidth = 5120;
  constexpr int64_t kRows = 64;
  ThreadPool pool(1);
  const std::vector<float> x = bench_floats(kRows * kWidth, 1);
  const std::vector<float> weight = bench_floats(kWidth, 2);
  std::vector<float> out(x.size());
  RmsNormArgs args{x.data(), kWidth, weight.data(), out.data(), kWidth,
                   1,        kWidth, 1e-6f,         1.0f,       Rounding::bf16};
  BENCHMARK("rmsnorm T=1") {
    rmsnorm(args, pool);
    return out[0];
  };
  args.n_rows = kRows;
  BENCHMARK("rmsnorm T=64") {
    rmsnorm(args, pool);
    return out[0];
  };
}

}  // namespace lockstep
