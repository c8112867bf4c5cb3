// The two token mixers and the parallel products, written once for the main layers and the MTP layer.
#pragma once

#include "engine/rank/layers.h"

namespace lockstep {

// Where a layer's state lies: its index among all layers, among attention and among GDN layers.
struct LayerCursor {
  int layer = 0;
  int kv_layer = 0;
  int gdn_layer = 0;
};

// out[t, :] = x[t, :] W^T for stacked row pieces. out is dense with row width `out_width`.
void linear_rows(const Model& model, const MatrixPieces& pieces, const float* x, int64_t n_columns,
                 float* out, int64_t out_width, Rounding rounding);

// The same into a buffer that is grown as needed, with the model's rounding.
void linear_pieces(const Model& model, const MatrixPieces& pieces, const std::vector<float>& x,
                   int64_t n_columns, std::vector<float>& out);

// ws.branch = all-reduced product of x [n_columns, local width] with half-K parts (I3).
void row_parallel(const Model& model, const MatrixHalves& halves, const std::vector<float>& x,
                  int64_t x_width, int64_t n_columns, Workspace& ws);

// Read ws.normed, leave the branch output (after the all-reduce) in ws.branch.
void attention_mixer(const Model& model, const AttentionWeights& weights, const Batch& batch,
                     const LayerCursor& cursor, Workspace& ws);
void gdn_mixer(const Model& model, const GdnWeights& weights, const Batch& batch,
               const LayerCursor& cursor, Workspace& ws);

}  // namespace lockstep
