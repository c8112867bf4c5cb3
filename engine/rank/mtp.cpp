#include "engine/rank/mtp.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/fault.h"
#include "engine/ops/linear/linear.h"
#include "engine/ops/residual_add/residual_add.h"
#include "engine/ops/rmsnorm/rmsnorm.h"
#include "engine/rank/branches.h"

namespace lockstep {
namespace {

// x = fc [ norm(embedding of the next token) ; norm(hidden) ]
void project_inputs(const Model& model, const MtpWeights& mtp, const Batch& batch,
                    const float* hidden_rows, MtpWorkspace& ws) {
  const int64_t n = batch.n_columns();
  const int64_t hidden = model.config.hidden_size;
  grow(ws.embedded, n * hidden);
  grow(ws.joined, n * 2 * hidden);
  grow(ws.x, n * hidden);
  embed_columns(model, batch, ws.embedded.data());
  const float eps = model.config.rms_norm_eps;
  rmsnorm({ws.embedded.data(), hidden, mtp.embedding_norm.data(), ws.joined.data(), 2 * hidden, n,
           hidden, eps, 1.0f, model.rounding},
          model.pool);
  rmsnorm({hidden_rows, hidden, mtp.hidden_norm.data(), ws.joined.data() + hidden, 2 * hidden, n,
           hidden, eps, 1.0f, model.rounding},
          model.pool);
  if (fault_fires("mtp.inputs-swapped")) {
    for (int64_t t = 0; t < n; ++t) {
      float* row = ws.joined.data() + t * 2 * hidden;
      std::swap_ranges(row, row + hidden, row + hidden);
    }
  }
  linear({mtp.fc, ws.joined.data(), 2 * hidden, ws.x.data(), hidden, n, model.rounding},
         model.pool);
}

// The last column of each span as a batch of its own; x is compacted to those rows.
Batch last_columns(const Batch& batch, int64_t hidden, std::vector<float>& x) {
  Batch last;
  last.round = batch.round;
  for (const Span& span : batch.spans) {
    Span one = span;
    const int64_t column = span.column + span.n_tokens - 1;
    one.first_position = span.first_position + span.n_tokens - 1;
    one.n_tokens = 1;
    one.column = last.n_columns();
    std::copy_n(x.data() + column * hidden, hidden, x.data() + one.column * hidden);
    last.ids.push_back(batch.ids[static_cast<size_t>(column)]);
    last.positions.push_back(batch.positions[static_cast<size_t>(column)]);
    last.spans.push_back(one);
  }
  return last;
}

}  // namespace

void mtp_forward(const Model& model, const Batch& batch, const float* hidden_rows, MtpWorkspace& ws,
                 std::vector<float>* out) {
  LOCKSTEP_CHECK(model.weights.mtp != nullptr);
  const MtpWeights& mtp = *model.weights.mtp;
  const int64_t hidden = model.config.hidden_size;
  const LayerCursor cursor{model.config.n_layers(), model.config.n_kv_layers(), 0};
  project_inputs(model, mtp, batch, hidden_rows, ws);
  grow(ws.normed, batch.n_columns() * hidden);
  norm_rows(model, ws.x.data(), mtp.layer.input_norm, batch.n_columns(), ws.normed.data());
  store_kv(model, mtp.layer.attention, ws.normed.data(), batch, cursor, ws.layer);
  if (out == nullptr) return;

  const Batch last = last_columns(batch, hidden, ws.x);
  const int64_t n = last.n_columns();
  norm_rows(model, ws.x.data(), mtp.layer.input_norm, n, ws.normed.data());
  attend(model, mtp.layer.attention, ws.normed.data(), last, cursor, ws.layer);
  residual_add(ws.x.data(), ws.layer.branch.data(), n * hidden, model.rounding);
  norm_rows(model, ws.x.data(), mtp.layer.post_attention_norm, n, ws.normed.data());
  mlp_branch(model, mtp.layer.mlp, ws.normed.data(), last, cursor, ws.layer);
  residual_add(ws.x.data(), ws.layer.branch.data(), n * hidden, model.rounding);
  out->resize(static_cast<size_t>(n * hidden));
  norm_rows(model, ws.x.data(), mtp.norm, n, out->data());
}

}  // namespace lockstep
