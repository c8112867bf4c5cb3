// The branches of a layer (token mixers and MLP) and the parallel products, written once for the
// main layers and the MTP layer.
#pragma once

#include "engine/ops/linear/linear.h"
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

// Products of the same rows that run as one: each matrix into a buffer of its own, with the model's
// rounding.
class LinearBatch {
 public:
  LinearBatch(const Model& model, const float* x, int64_t n_columns)
      : model_(model), x_(x), n_columns_(n_columns) {}

  // The buffer is grown as needed; it must not be that of another matrix of the batch.
  void add(const MatrixPieces& pieces, std::vector<float>& out);
  void add(const MatrixPieces& pieces, float* out, int64_t out_width);
  void run();

 private:
  const Model& model_;
  const float* x_;
  int64_t n_columns_;
  std::vector<LinearArgs> args_;
};

// ws.branch = all-reduced product of x [n_columns, local width] with half-K parts (I3).
void row_parallel(const Model& model, const MatrixHalves& halves, const std::vector<float>& x,
                  int64_t x_width, int64_t n_columns, Workspace& ws);

// Each branch reads `normed` [n_columns, hidden] and leaves its output, after the all-reduce, in
// ws.branch.
void attention_branch(const Model& model, const AttentionWeights& weights, const float* normed,
                      const Batch& batch, const LayerCursor& cursor, Workspace& ws);
void gdn_branch(const Model& model, const GdnWeights& weights, const float* normed,
                const Batch& batch, const LayerCursor& cursor, Workspace& ws);
void mlp_branch(const Model& model, const MlpWeights& weights, const float* normed,
                const Batch& batch, const LayerCursor& cursor, Workspace& ws);

// The two steps of attention_branch. The MTP layer stores K and V of all its columns but attends
// from the last one of each span only.
void store_kv(const Model& model, const AttentionWeights& weights, const float* normed,
              const Batch& batch, const LayerCursor& cursor, Workspace& ws);
void attend(const Model& model, const AttentionWeights& weights, const float* normed,
            const Batch& batch, const LayerCursor& cursor, Workspace& ws);

// Brings every GDN layer of a sequence to the state after the first `n_keep` columns of its last
// verification round: the round's start state, replayed with the operations of the round itself.
void rewind_gdn(const Model& model, Sequence& sequence, int64_t n_keep, Workspace& ws);

// Norm of hidden-sized rows with (1 + w).
void norm_rows(const Model& model, const float* x, const std::vector<float>& weight, int64_t n_rows,
               float* out);

void grow(std::vector<float>& buffer, int64_t size);

}  // namespace lockstep
