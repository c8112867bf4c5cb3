#include <algorithm>

#include "engine/base/error.h"
#include "engine/ops/gated_rmsnorm/gated_rmsnorm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/gated_rmsnorm/gated_rmsnorm_simd.cpp"
#include <hwy/foreach_target.h>

#include "engine/ops/common/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {

void gated_rmsnorm_row(const GatedRmsNormArgs& args, int64_t row) {
  const FloatTag d;
  const float* x = args.x + row * args.width;
  const float* z = args.z + row * args.width;
  float* out = args.out + row * args.width;
  const float square_sum = lanes_dot(x, x, args.width);
  const FloatVec mean = hn::Div(hn::Set(d, square_sum), hn::Set(d, static_cast<float>(args.width)));
  const FloatVec root = hn::Sqrt(hn::Add(mean, hn::Set(d, args.eps)));
  const bool round = args.rounding == Rounding::bf16;
  for (int64_t i = 0; i < args.width; i += kVecLanes) {
    const FloatVec normed = hn::Div(hn::LoadU(d, x + i), root);
    const FloatVec scaled = hn::Mul(normed, hn::LoadU(d, args.weight + i));
    const FloatVec value = hn::Mul(scaled, silu_vec(hn::LoadU(d, z + i)));
    hn::StoreU(round ? round_bf16_vec(value) : value, d, out + i);
  }
}

void gated_rmsnorm_rows(const GatedRmsNormArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) gated_rmsnorm_row(args, row);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(gated_rmsnorm_rows);

void gated_rmsnorm(const GatedRmsNormArgs& args, ThreadPool& pool) {
  LOCKSTEP_CHECK(args.width > 0 && args.width % 16 == 0);
  // Waking a thread costs about as much as a few thousand values.
  const int64_t grain = std::max<int64_t>(1, 4096 / args.width);
  const auto kernel = HWY_DYNAMIC_DISPATCH(gated_rmsnorm_rows);
  pool.parallel_for(args.n_rows, grain,
                    [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

}  // namespace lockstep
#endif  // HWY_ONCE
