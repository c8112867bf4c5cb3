#include "engine/base/math.h"
#include "engine/ops/causal_conv/causal_conv.h"

namespace lockstep {

void causal_conv_oracle(const CausalConvArgs& args, double* value) {
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    for (int64_t channel = 0; channel < args.n_channels; ++channel) {
      double sum = 0;
      for (int64_t tap = 0; tap < 4; ++tap) {
        const int64_t from = t - 3 + tap;
        const double input = from < 0 ? double{args.state[channel * 3 + 3 + from]}
                                      : double{args.m[from * args.m_stride + channel]};
        sum += double{args.weight[channel * 4 + tap]} * input;
      }
      value[t * args.n_channels + channel] = sum / (1.0 + exp_f64(-sum));
    }
  }
}

}  // namespace lockstep
