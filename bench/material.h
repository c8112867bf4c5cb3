// Seeded matrices and vectors to measure with. Values are ordinary numbers of magnitude up to 1:
// no NaN, infinity or denormal, which some processors compute slowly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/weight_matrix.h"
#include "engine/ops/attention/kv_view.h"

namespace lockstep {

inline constexpr int64_t kBenchInt4Group = 128;

std::vector<float> bench_floats(int64_t n, uint64_t seed);

// A weight matrix that owns its bytes; int4 has groups of kBenchInt4Group.
class BenchMatrix {
 public:
  BenchMatrix(Codec codec, int64_t n_rows, int64_t n_cols, uint64_t seed);
  BenchMatrix(const BenchMatrix&) = delete;
  BenchMatrix& operator=(const BenchMatrix&) = delete;

  const WeightMatrix& view() const { return view_; }

 private:
  WeightMatrix view_;
  std::vector<std::byte> codes_;
  std::vector<uint8_t> byte_scales_;
  std::vector<float> float_scales_;
  std::vector<float> row_scale_;
};

// One sequence's cache of one layer. Its bytes are binary16 or bfloat16 values, which read as INT8
// codes and scales are ordinary numbers too.
class BenchCache {
 public:
  BenchCache(KvType type, int n_kv_heads, int head_dim, int64_t n_positions);

  const KvView& view() const { return view_; }

 private:
  std::vector<std::byte> pool_;
  std::vector<uint32_t> pages_;
  KvView view_;
};

}  // namespace lockstep
