// Float64 references of the gated delta rule for its tests, with a derived error bound for every
// output of the float32 kernels, and with deliberate mistakes that a bound has to catch.
#pragma once

#include <vector>

#include "engine/ops/gated_delta/gated_delta.h"

namespace lockstep {

enum class GdnMutant {
  none,
  decay_after_update,
  stale_state,  // output read before the update
  beta_forgotten,
  query_scale_forgotten,
  keys_not_normalised,
  wrong_key_head,
  read_before_decay,  // r from the state that has not decayed yet
  epsilon_on_the_mean,
};

struct GdnReference {
  std::vector<double> value;  // [n_tokens, n_v_heads, dv]
  std::vector<double> value_bound;
  std::vector<double> state;  // [n_v_heads, dk, dv]
  std::vector<double> state_bound;
};

// Token by token. Bounds are for gated_delta_recurrent.
GdnReference gdn_recurrent_reference(const GatedDeltaArgs& args,
                                     GdnMutant mutant = GdnMutant::none);
// How the chunked form is computed.
enum class GdnForm {
  substitution,  // gated_delta_chunked: lane dots, forward substitution
  inverse,       // CUDA: V' = (I + A)^-1 rhs, sums by FMA
  matrix_unit,   // CUDA: the same in the matrix unit, float32 factors in three bfloat16 parts
};
// The same values with bounds for a chunked form.
GdnReference gdn_chunked_reference(const GatedDeltaArgs& args,
                                   GdnForm form = GdnForm::substitution);

}  // namespace lockstep
