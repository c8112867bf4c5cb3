#include <algorithm>

#include "engine/base/error.h"
#include "engine/ops/layernorm/layernorm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/layernorm/layernorm_simd.cpp"
#include <hwy/foreach_target.h>

#include "engine/ops/common/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {

FloatVec row_mean(const float* x, int64_t width) {
  const FloatTag d;
  Lanes16 sum = lanes_zero();
  for (int64_t i = 0; i < width; i += 16) sum = lanes_add(sum, lanes_load(x + i));
  return hn::Div(hn::Set(d, lanes_tree_sum(sum)), hn::Set(d, static_cast<float>(width)));
}

FloatVec row_variance(const float* x, int64_t width, FloatVec mean) {
  const FloatTag d;
  Lanes16 sum = lanes_zero();
  for (int64_t i = 0; i < width; i += 16) {
    Lanes16 centred = lanes_load(x + i);
    LOCKSTEP_UNROLL
    for (int v = 0; v < kVecs; ++v) centred.v[v] = hn::Sub(centred.v[v], mean);
    sum = lanes_fma(centred, centred, sum);
  }
  return hn::Div(hn::Set(d, lanes_tree_sum(sum)), hn::Set(d, static_cast<float>(width)));
}

void layernorm_rows(const LayerNormArgs& args, int64_t begin, int64_t end) {
  const FloatTag d;
  const bool round = args.rounding == Rounding::bf16;
  for (int64_t row = begin; row < end; ++row) {
    const float* x = args.x + row * args.width;
    float* out = args.out + row * args.width;
    const FloatVec mean = row_mean(x, args.width);
    const FloatVec variance = row_variance(x, args.width, mean);
    const FloatVec root = hn::Sqrt(hn::Add(variance, hn::Set(d, args.eps)));
    const FloatVec inverse = hn::Div(hn::Set(d, 1.0f), root);
    for (int64_t i = 0; i < args.width; i += kVecLanes) {
      const FloatVec scaled = hn::Mul(hn::Sub(hn::LoadU(d, x + i), mean), inverse);
      const FloatVec value =
          hn::MulAdd(scaled, hn::LoadU(d, args.weight + i), hn::LoadU(d, args.bias + i));
      hn::StoreU(round ? round_bf16_vec(value) : value, d, out + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(layernorm_rows);

void layernorm(const LayerNormArgs& args, ThreadPool& pool) {
  LOCKSTEP_CHECK(args.width > 0 && args.width % 16 == 0);
  // Waking a thread costs about as much as normalising a few thousand values.
  const int64_t grain = std::max<int64_t>(1, 8192 / args.width);
  const auto kernel = HWY_DYNAMIC_DISPATCH(layernorm_rows);
  pool.parallel_for(args.n_rows, grain,
                    [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

}  // namespace lockstep
#endif  // HWY_ONCE
