// The 16 virtual lanes that fix the order of every float32 reduction, whatever the vector width.
// Lane l holds the partial sum of indices l, l+16, l+32, ...; tree_sum adds l with l+8, then l+4,
// l+2, l+1. AVX-512 keeps the lanes in one register, AVX2 in two: the bits are the same.
//
// Included once per instruction set by Highway's foreach_target.

#if defined(LOCKSTEP_ENGINE_OPS_COMMON_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_ENGINE_OPS_COMMON_LANES_INL_H_
#undef LOCKSTEP_ENGINE_OPS_COMMON_LANES_INL_H_
#else
#define LOCKSTEP_ENGINE_OPS_COMMON_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "engine/ops/common/rounding.h"

// Full unrolling of short loops over registers: without it -O2 keeps arrays of registers in memory.
// AddressSanitizer keeps them in memory anyway and checks every access: unrolled, that takes the
// compiler minutes for a kernel.
#ifndef LOCKSTEP_UNROLL
#ifdef __SANITIZE_ADDRESS__
#define LOCKSTEP_UNROLL
#elif defined(__clang__)
#define LOCKSTEP_UNROLL _Pragma("unroll")
#else
#define LOCKSTEP_UNROLL _Pragma("GCC unroll 32")
#endif
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<FloatTag>;
constexpr int kVecLanes = static_cast<int>(hn::MaxLanes(FloatTag()));
constexpr int kVecs = 16 / kVecLanes;  // registers that hold the 16 lanes
static_assert(kVecs <= 2, "only AVX2 and AVX-512 are compiled, see engine/ops/CMakeLists.txt");

struct Lanes16 {
  FloatVec v[kVecs];
};

HWY_INLINE Lanes16 lanes_zero() {
  Lanes16 r;
  LOCKSTEP_UNROLL
  for (int i = 0; i < kVecs; ++i) r.v[i] = hn::Zero(FloatTag());
  return r;
}

HWY_INLINE Lanes16 lanes_set(float value) {
  Lanes16 r;
  LOCKSTEP_UNROLL
  for (int i = 0; i < kVecs; ++i) r.v[i] = hn::Set(FloatTag(), value);
  return r;
}

HWY_INLINE Lanes16 lanes_load(const float* p) {
  Lanes16 r;
  LOCKSTEP_UNROLL
  for (int i = 0; i < kVecs; ++i) r.v[i] = hn::LoadU(FloatTag(), p + i * kVecLanes);
  return r;
}

HWY_INLINE void lanes_store(const Lanes16& a, float* p) {
  LOCKSTEP_UNROLL
  for (int i = 0; i < kVecs; ++i) hn::StoreU(a.v[i], FloatTag(), p + i * kVecLanes);
}

// a * b + c, fused.
HWY_INLINE Lanes16 lanes_fma(const Lanes16& a, const Lanes16& b, const Lanes16& c) {
  Lanes16 r;
  LOCKSTEP_UNROLL
  for (int i = 0; i < kVecs; ++i) r.v[i] = hn::MulAdd(a.v[i], b.v[i], c.v[i]);
  return r;
}

HWY_INLINE Lanes16 lanes_add(const Lanes16& a, const Lanes16& b) {
  Lanes16 r;
  LOCKSTEP_UNROLL
  for (int i = 0; i < kVecs; ++i) r.v[i] = hn::Add(a.v[i], b.v[i]);
  return r;
}

HWY_INLINE Lanes16 lanes_mul(const Lanes16& a, const Lanes16& b) {
  Lanes16 r;
  LOCKSTEP_UNROLL
  for (int i = 0; i < kVecs; ++i) r.v[i] = hn::Mul(a.v[i], b.v[i]);
  return r;
}

// Adds the upper half of a vector to its lower half until four lanes are left, then finishes in
// order.
template <class D>
HWY_INLINE float tree_sum_vec(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return tree_sum_vec(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    HWY_ALIGN float t[4];
    hn::Store(v, d, t);
    return (t[0] + t[2]) + (t[1] + t[3]);
  }
}

HWY_INLINE float lanes_tree_sum(const Lanes16& a) {
  FloatVec v[kVecs];
  LOCKSTEP_UNROLL
  for (int i = 0; i < kVecs; ++i) v[i] = a.v[i];
  LOCKSTEP_UNROLL
  for (int n = kVecs / 2; n >= 1; n /= 2) {
    LOCKSTEP_UNROLL
    for (int i = 0; i < n; ++i) v[i] = hn::Add(v[i], v[i + n]);
  }
  return tree_sum_vec(FloatTag(), v[0]);
}

// One step of the tree for two vectors together: adds lanes l and l + kStep of each, and returns
// the sums of `a` where bit kStep of the lane index is clear and those of `b` where it is set. The
// two terms of a sum may swap places, which never changes a float sum.
template <int kStep>
HWY_INLINE FloatVec tree_step(FloatVec a, FloatVec b) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  const hn::Repartition<uint64_t, FloatTag> du64;
  if constexpr (kStep == 1) {
    return hn::Add(hn::OddEven(b, a),
                   hn::BitCast(d, hn::Shuffle2301(hn::BitCast(du, hn::OddEven(a, b)))));
  } else if constexpr (kStep == 2) {
    const auto a64 = hn::BitCast(du64, a);
    const auto b64 = hn::BitCast(du64, b);
    return hn::Add(hn::BitCast(d, hn::OddEven(b64, a64)),
                   hn::BitCast(d, hn::Shuffle01(hn::OddEven(a64, b64))));
  } else if constexpr (kStep == 4) {
    return hn::Add(hn::OddEvenBlocks(b, a), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(a, b)));
  } else {
    const FloatVec crossed = hn::ConcatUpperLower(d, a, b);
    return hn::Add(hn::ConcatUpperLower(d, b, a), hn::ConcatLowerUpper(d, crossed, crossed));
  }
}

// lanes_tree_sum of kCount <= kVecLanes accumulators at once: lane i of the result is the sum of
// a[i]. Lanes from kCount on hold repetitions.
template <int kCount>
HWY_INLINE FloatVec lanes_tree_sums(const Lanes16* a) {
  static_assert(kCount >= 1 && kCount <= kVecLanes);
  FloatVec v[kVecLanes];
  LOCKSTEP_UNROLL
  for (int i = 0; i < kVecLanes; ++i) {
    const Lanes16& lanes = a[i < kCount ? i : 0];
    v[i] = kVecs == 1 ? lanes.v[0] : hn::Add(lanes.v[0], lanes.v[kVecs - 1]);
  }
  if constexpr (kVecLanes == 16) {
    LOCKSTEP_UNROLL
    for (int i = 0; i < 8; ++i) v[i] = tree_step<8>(v[i], v[i + 8]);
  }
  LOCKSTEP_UNROLL
  for (int i = 0; i < 4; ++i) v[i] = tree_step<4>(v[i], v[i + 4]);
  return tree_step<1>(tree_step<2>(v[0], v[2]), tree_step<2>(v[1], v[3]));
}

// Dot product of n values, n a multiple of 16.
HWY_INLINE float lanes_dot(const float* a, const float* b, int64_t n) {
  Lanes16 sum = lanes_zero();
  for (int64_t k = 0; k < n; k += 16) sum = lanes_fma(lanes_load(a + k), lanes_load(b + k), sum);
  return lanes_tree_sum(sum);
}

// Round to nearest even to the values that bfloat16 holds; NaN stays NaN.
HWY_INLINE FloatVec round_bf16_vec(FloatVec v) {
  const hn::RebindToUnsigned<FloatTag> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto sum = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const FloatVec rounded = hn::BitCast(FloatTag(), hn::And(sum, hn::Set(du, 0xffff0000u)));
  return hn::IfThenElse(hn::IsNaN(v), v, rounded);
}

HWY_INLINE Lanes16 lanes_round(const Lanes16& a, Rounding rounding) {
  if (rounding == Rounding::none) return a;
  Lanes16 r;
  LOCKSTEP_UNROLL
  for (int i = 0; i < kVecs; ++i) r.v[i] = round_bf16_vec(a.v[i]);
  return r;
}

// exp in float32: range reduction by ln 2 in two parts, Taylor polynomial of degree 7, scaling by
// two powers of two so that subnormal results are reached. Within 2 ulp; exp(0) = 1 exactly; NaN
// stays.
HWY_INLINE FloatVec exp_vec(FloatVec x) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const FloatVec clamped = hn::Max(hn::Min(x, hn::Set(d, 89.0f)), hn::Set(d, -104.5f));
  const FloatVec n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504f)));
  FloatVec r = hn::MulAdd(n, hn::Set(d, -0.693359375f), clamped);
  r = hn::MulAdd(n, hn::Set(d, 2.12194440e-4f), r);
  FloatVec p = hn::Set(d, 1.0f / 5040.0f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 720.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 120.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 24.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 6.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const auto exponent = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(exponent);
  const auto bias = hn::Set(di, 127);
  const FloatVec scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const FloatVec scale2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias)));
  const FloatVec result = hn::Mul(hn::Mul(p, scale1), scale2);
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

HWY_INLINE Lanes16 lanes_exp(const Lanes16& a) {
  Lanes16 r;
  LOCKSTEP_UNROLL
  for (int i = 0; i < kVecs; ++i) r.v[i] = exp_vec(a.v[i]);
  return r;
}

// 1 / (1 + exp(-x)); division is IEEE.
HWY_INLINE FloatVec sigmoid_vec(FloatVec x) {
  const FloatVec one = hn::Set(FloatTag(), 1.0f);
  return hn::Div(one, hn::Add(one, exp_vec(hn::Neg(x))));
}

// x / (1 + exp(-x))
HWY_INLINE FloatVec silu_vec(FloatVec x) {
  return hn::Div(x, hn::Add(hn::Set(FloatTag(), 1.0f), exp_vec(hn::Neg(x))));
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_ENGINE_OPS_COMMON_LANES_INL_H_
