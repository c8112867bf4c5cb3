// The multi-token-prediction layer: drafts from the target's final-norm rows.
// Slot i takes the embedding of token i+1 and the hidden row of position i, at the rope position of
// i, and has its own K and V (cache layer config.n_kv_layers()).
#pragma once

#include <vector>

#include "engine/rank/layers.h"

namespace lockstep {

struct MtpWorkspace {
  std::vector<float> embedded;  // [n_columns, hidden]
  std::vector<float> joined;    // [n_columns, 2 * hidden], embedding first
  std::vector<float> x;         // [n_columns, hidden]
  std::vector<float> normed;    // [n_columns, hidden]
  Workspace layer;

  int64_t n_floats() const {
    const size_t n = embedded.size() + joined.size() + x.size() + normed.size();
    return static_cast<int64_t>(n) + layer.n_floats();
  }
};

// Stores K and V of every column of `batch` (ids[c] = token i+1, span positions = slots i) from
// `hidden` [n_columns, hidden], and writes the layer's final-norm output of each span's last column
// to out [n_spans, hidden] (skipped when `out` is null).
void mtp_forward(const Model& model, const Batch& batch, const float* hidden, MtpWorkspace& ws,
                 std::vector<float>* out);

}  // namespace lockstep
