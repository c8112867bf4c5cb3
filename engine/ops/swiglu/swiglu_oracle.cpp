#include <cmath>

#include "engine/ops/swiglu/swiglu.h"

namespace lockstep {

void swiglu_oracle(const SwigluArgs& args, double* value) {
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    for (int64_t i = 0; i < args.width; ++i) {
      const double gate = args.gate[t * args.gate_stride + i];
      const double up = args.up[t * args.up_stride + i];
      value[t * args.width + i] = gate / (1.0 + std::exp(-gate)) * up;
    }
  }
}

}  // namespace lockstep
