#include "engine/ops/hadamard/hadamard.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/hadamard/hadamard_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "engine/base/error.h"
#include "engine/ops/common/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {
namespace {

// The four stages inside a vector. `partner` holds, in every lane, the other value of its pair; the
// lower lane of a pair becomes a + b and the upper one a - b.
HWY_INLINE FloatVec stages_in_vector(FloatVec v) {
  const FloatTag d;
  const hn::Repartition<double, FloatTag> d64;
  FloatVec partner = hn::Shuffle2301(v);
  v = hn::OddEven(hn::Sub(partner, v), hn::Add(v, partner));
  partner = hn::Shuffle1032(v);
  v = hn::BitCast(
      d, hn::OddEven(hn::BitCast(d64, hn::Sub(partner, v)), hn::BitCast(d64, hn::Add(v, partner))));
  if constexpr (kVecLanes >= 8) {
    partner = hn::SwapAdjacentBlocks(v);
    v = hn::OddEvenBlocks(hn::Sub(partner, v), hn::Add(v, partner));
  }
  if constexpr (kVecLanes == 16) {
    partner = hn::ConcatLowerUpper(d, v, v);
    v = hn::ConcatUpperLower(d, hn::Sub(partner, v), hn::Add(v, partner));
  }
  return v;
}

void transform_row(float* x, int width, float factor, Rounding rounding) {
  const FloatTag d;
  for (int i = 0; i < width; i += kVecLanes) {
    hn::StoreU(stages_in_vector(hn::LoadU(d, x + i)), d, x + i);
  }
  for (int stride = kVecLanes; stride < width; stride *= 2) {
    for (int block = 0; block < width; block += 2 * stride) {
      for (int i = block; i < block + stride; i += kVecLanes) {
        const FloatVec a = hn::LoadU(d, x + i);
        const FloatVec b = hn::LoadU(d, x + i + stride);
        hn::StoreU(hn::Add(a, b), d, x + i);
        hn::StoreU(hn::Sub(a, b), d, x + i + stride);
      }
    }
  }
  const Lanes16 factors = lanes_set(factor);
  for (int i = 0; i < width; i += 16) {
    lanes_store(lanes_round(lanes_mul(lanes_load(x + i), factors), rounding), x + i);
  }
}

}  // namespace

void hadamard_target(float* x, int64_t row_stride, int64_t n_rows, int width, Rounding rounding,
                     ThreadPool& pool) {
  const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
  pool.parallel_for(n_rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      transform_row(x + row * row_stride, width, factor, rounding);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(hadamard_target);

void hadamard(float* x, int64_t row_stride, int64_t n_rows, int width, Rounding rounding,
              ThreadPool& pool) {
  LOCKSTEP_CHECK(width >= 16 && width <= 1024 && (width & (width - 1)) == 0);
  HWY_DYNAMIC_DISPATCH(hadamard_target)(x, row_stride, n_rows, width, rounding, pool);
}

}  // namespace lockstep
#endif  // HWY_ONCE
