#include "engine/base/error.h"
#include "engine/ops/gelu/gelu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/gelu/gelu_simd.cpp"
#include <hwy/foreach_target.h>

#include "engine/ops/common/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {

// Phi(-|x|) / exp(-x^2/2) = t P(t - 0.59375) with t = 1 / (1 + 0.3 |x|): interpolated in ten
// Chebyshev nodes of t for |x| <= 14.5, relative error 3.2e-8 with these rounded coefficients.
// Beyond, the exponential is 0 in float32.
constexpr float kTailCentre = 0.59375f;
constexpr float kTailSlope = 0.3f;
constexpr float kTail[] = {0.256056696f,   0.399991363f,   0.409516335f,    0.225666478f,
                           -0.0109780943f, -0.0907412916f, -0.00950030889f, 0.0442370772f,
                           0.00227368576f, -0.0209560245f};

FloatVec gelu_exact_vec(FloatVec x) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0f);
  const FloatVec size = hn::Abs(x);
  const FloatVec t = hn::Div(one, hn::MulAdd(size, hn::Set(d, kTailSlope), one));
  const FloatVec s = hn::Sub(t, hn::Set(d, kTailCentre));
  FloatVec p = hn::Set(d, kTail[9]);
  LOCKSTEP_UNROLL
  for (int i = 8; i >= 0; --i) p = hn::MulAdd(p, s, hn::Set(d, kTail[i]));
  // The square's rounding error would be magnified by the exponential: it is put back to first
  // order.
  const FloatVec square = hn::Mul(x, x);
  const FloatVec rest = hn::MulSub(x, x, square);
  const FloatVec half = hn::Set(d, -0.5f);
  const FloatVec e = exp_vec(hn::Mul(square, half));
  const FloatVec corrected = hn::MulAdd(e, hn::Mul(rest, half), e);
  const FloatVec tail = hn::Mul(corrected, hn::Mul(t, p));
  const auto negative = hn::Lt(x, hn::Zero(d));
  return hn::Mul(x, hn::IfThenElse(negative, tail, hn::Sub(one, tail)));
}

FloatVec gelu_tanh_vec(FloatVec x) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0f);
  const FloatVec cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.044715f), one);
  // -2 sqrt(2/pi)
  const FloatVec exponent = hn::Mul(hn::Mul(x, hn::Set(d, -1.595769122f)), cubic);
  return hn::Div(x, hn::Add(one, exp_vec(exponent)));
}

// In pieces of one vector; the last piece goes through a padded buffer.
template <typename Function>
void map_values(float* x, int64_t n, bool round, Function function) {
  const FloatTag d;
  const auto piece = [&](float* p) {
    const FloatVec value = function(hn::LoadU(d, p));
    hn::StoreU(round ? round_bf16_vec(value) : value, d, p);
  };
  int64_t i = 0;
  for (; i + kVecLanes <= n; i += kVecLanes) piece(x + i);
  if (i == n) return;
  float rest[kVecLanes] = {};
  for (int64_t k = i; k < n; ++k) rest[k - i] = x[k];
  piece(rest);
  for (int64_t k = i; k < n; ++k) x[k] = rest[k - i];
}

void gelu_range(float* x, int64_t n, GeluKind kind, bool round) {
  if (kind == GeluKind::exact) {
    map_values(x, n, round, [](FloatVec v) { return gelu_exact_vec(v); });
  } else {
    map_values(x, n, round, [](FloatVec v) { return gelu_tanh_vec(v); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(gelu_range);

void gelu(float* x, int64_t n, GeluKind kind, Rounding rounding, ThreadPool& pool) {
  constexpr int64_t kGrain = 8192;
  const auto kernel = HWY_DYNAMIC_DISPATCH(gelu_range);
  pool.parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    kernel(x + begin, end - begin, kind, rounding == Rounding::bf16);
  });
}

}  // namespace lockstep
#endif  // HWY_ONCE
