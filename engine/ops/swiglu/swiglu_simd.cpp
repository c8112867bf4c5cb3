#include <algorithm>
#include <cstring>

#include "engine/ops/swiglu/swiglu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/swiglu/swiglu_simd.cpp"
#include <hwy/foreach_target.h>

#include "engine/ops/common/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {

void swiglu_vec(const float* gate, const float* up, float* out, bool round) {
  const FloatTag d;
  const FloatVec value = hn::Mul(silu_vec(hn::LoadU(d, gate)), hn::LoadU(d, up));
  hn::StoreU(round ? round_bf16_vec(value) : value, d, out);
}

// The last values go through a full vector too, so that a value's bits do not depend on its place.
void swiglu_tail(const float* gate, const float* up, float* out, int64_t n, bool round) {
  float gate_padded[kVecLanes] = {};
  float up_padded[kVecLanes] = {};
  float out_padded[kVecLanes];
  const size_t n_bytes = static_cast<size_t>(n) * sizeof(float);
  std::memcpy(gate_padded, gate, n_bytes);
  std::memcpy(up_padded, up, n_bytes);
  swiglu_vec(gate_padded, up_padded, out_padded, round);
  std::memcpy(out, out_padded, n_bytes);
}

void swiglu_span(const float* gate, const float* up, float* out, int64_t n, bool round) {
  int64_t i = 0;
  for (; i + kVecLanes <= n; i += kVecLanes) swiglu_vec(gate + i, up + i, out + i, round);
  if (i < n) swiglu_tail(gate + i, up + i, out + i, n - i, round);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

// A row is cut too: a decode step has one to eight rows of several thousand values.
constexpr int64_t kSpan = 2048;

}  // namespace

HWY_EXPORT(swiglu_span);

void swiglu(const SwigluArgs& args, ThreadPool& pool) {
  const int64_t spans_per_row = (args.width + kSpan - 1) / kSpan;
  const bool round = args.rounding == Rounding::bf16;
  const auto kernel = HWY_DYNAMIC_DISPATCH(swiglu_span);
  pool.parallel_for(args.n_tokens * spans_per_row, 1, [&](int64_t begin, int64_t end) {
    for (int64_t span = begin; span < end; ++span) {
      const int64_t row = span / spans_per_row;
      const int64_t column = span % spans_per_row * kSpan;
      kernel(args.gate + row * args.gate_stride + column, args.up + row * args.up_stride + column,
             args.out + row * args.out_stride + column, std::min(kSpan, args.width - column),
             round);
    }
  });
}

}  // namespace lockstep
#endif  // HWY_ONCE
