#include "engine/ops/causal_conv/causal_conv.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/causal_conv/causal_conv_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "engine/ops/common/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {
namespace {

// Weights and state of 16 channels, tap by tap. Memory has the taps of a channel side by side; 16
// channels are turned round once and then serve every token.
struct Window {
  alignas(64) float weight[4][16] = {};
  alignas(64) float past[3][16] = {};
};

void load_window(const CausalConvArgs& args, int64_t first, int n, Window* window) {
  for (int i = 0; i < n; ++i) {
    for (int tap = 0; tap < 4; ++tap) window->weight[tap][i] = args.weight[(first + i) * 4 + tap];
    for (int tap = 0; tap < 3; ++tap) window->past[tap][i] = args.state[(first + i) * 3 + tap];
  }
}

void store_state(const CausalConvArgs& args, int64_t first, int n, const Window& window) {
  for (int i = 0; i < n; ++i) {
    for (int tap = 0; tap < 3; ++tap) args.state[(first + i) * 3 + tap] = window.past[tap][i];
  }
}

// Channels first to first + n, n <= 16. kFull: n is 16, so that tokens are read in place; otherwise
// they go through a padded copy.
template <bool kFull>
void convolve_channels(const CausalConvArgs& args, int64_t first, int n) {
  const FloatTag d;
  Window window;
  load_window(args, first, n, &window);
  alignas(64) float in[16] = {};
  alignas(64) float out[16];
  for (int i = 0; i < 16; i += kVecLanes) {
    const FloatVec w0 = hn::Load(d, window.weight[0] + i);
    const FloatVec w1 = hn::Load(d, window.weight[1] + i);
    const FloatVec w2 = hn::Load(d, window.weight[2] + i);
    const FloatVec w3 = hn::Load(d, window.weight[3] + i);
    FloatVec x0 = hn::Load(d, window.past[0] + i);
    FloatVec x1 = hn::Load(d, window.past[1] + i);
    FloatVec x2 = hn::Load(d, window.past[2] + i);
    for (int64_t t = 0; t < args.n_tokens; ++t) {
      const float* from = args.m + t * args.m_stride + first;
      float* to = args.out + t * args.out_stride + first;
      const int n_copied = std::clamp(n - i, 0, kVecLanes);
      if constexpr (!kFull) std::copy(from + i, from + i + n_copied, in + i);
      const FloatVec x3 = hn::LoadU(d, kFull ? from + i : in + i);
      FloatVec sum = hn::MulAdd(w0, x0, hn::Zero(d));
      sum = hn::MulAdd(w1, x1, sum);
      sum = hn::MulAdd(w2, x2, sum);
      sum = hn::MulAdd(w3, x3, sum);
      FloatVec y = silu_vec(sum);
      if (args.rounding == Rounding::bf16) y = round_bf16_vec(y);
      hn::StoreU(y, d, kFull ? to + i : out + i);
      if constexpr (!kFull) std::copy(out + i, out + i + n_copied, to + i);
      x0 = x1;
      x1 = x2;
      x2 = x3;
    }
    hn::Store(x0, d, window.past[0] + i);
    hn::Store(x1, d, window.past[1] + i);
    hn::Store(x2, d, window.past[2] + i);
  }
  store_state(args, first, n, window);
}

}  // namespace

void causal_conv_target(const CausalConvArgs& args, ThreadPool& pool) {
  // Waking a thread costs about as much as some ten thousand steps of a channel.
  const int64_t grain =
      std::max<int64_t>(64, 16384 / std::max<int64_t>(1, args.n_tokens) / 16 * 16);
  pool.parallel_for(args.n_channels, grain, [&](int64_t begin, int64_t end) {
    int64_t channel = begin;
    for (; channel + 16 <= end; channel += 16) convolve_channels<true>(args, channel, 16);
    if (channel < end) convolve_channels<false>(args, channel, static_cast<int>(end - channel));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(causal_conv_target);

void causal_conv(const CausalConvArgs& args, ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(causal_conv_target)(args, pool);
}

}  // namespace lockstep
#endif  // HWY_ONCE
