#include "engine/rank/layers.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/fault.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/residual_add/residual_add.h"
#include "engine/rank/branches.h"
#include "engine/rank/planted_faults.h"
#include "engine/rank/row_hooks.h"

namespace lockstep {

void Batch::add(Span span, const int32_t* tokens, const std::vector<const float*>& rows) {
  span.column = n_columns();
  if (!rows.empty()) {
    LOCKSTEP_CHECK(static_cast<int64_t>(rows.size()) == span.n_tokens);
    embedding_rows.resize(static_cast<size_t>(span.column), nullptr);
    embedding_rows.insert(embedding_rows.end(), rows.begin(), rows.end());
  }
  for (int64_t i = 0; i < span.n_tokens; ++i) {
    ids.push_back(tokens[i]);
    positions.push_back(span.sequence->rope_position(span.first_position + i));
  }
  spans.push_back(span);
}

void embed_columns(const Model& model, const Batch& batch, float* out) {
  const int64_t hidden = model.config.hidden_size;
  std::vector<int32_t> planted;
  if (fault_fires("embedding.next-row")) {
    for (const int32_t id : batch.ids) planted.push_back((id + 1) % model.config.vocab_size);
  }
  embedding(model.weights.embedding, planted.empty() ? batch.ids.data() : planted.data(),
            batch.n_columns(), model.rounding, out);
  for (size_t column = 0; column < batch.embedding_rows.size(); ++column) {
    const float* row = batch.embedding_rows[column];
    if (row != nullptr) std::copy_n(row, hidden, out + static_cast<int64_t>(column) * hidden);
  }
}

void forward(const Model& model, const Batch& batch, Workspace& ws) {
  const int64_t n = batch.n_columns();
  const int64_t hidden = model.config.hidden_size;
  grow(ws.hidden, n * hidden);
  grow(ws.normed, n * hidden);
  const bool hooks = has_row_hooks(batch);
  const auto pass = [&](const std::string& name, std::vector<float>& x) {
    pass_row_hooks(batch, name, hidden, model.rounding, x.data());
  };
  const auto tap = [&](int layer, const char* branch, std::vector<float>& x) {
    if (hooks) pass(fmt::format("layers.{}.{}", layer, branch), x);
  };

  embed_columns(model, batch, ws.hidden.data());
  if (hooks) pass("embed", ws.hidden);
  LayerCursor cursor;
  for (int i = 0; i < model.config.n_layers(); ++i) {
    const LayerWeights& layer = model.weights.layers[static_cast<size_t>(i)];
    cursor.layer = i;
    norm_rows(model, ws.hidden.data(), layer.input_norm, n, ws.normed.data());
    if (layer.kind == LayerKind::full_attention) {
      attention_branch(model, layer.attention, ws.normed.data(), batch, cursor, ws);
      ++cursor.kv_layer;
    } else {
      gdn_branch(model, layer.gdn, ws.normed.data(), batch, cursor, ws);
      ++cursor.gdn_layer;
    }
    tap(i, "mixer", ws.branch);
    residual_add(ws.hidden.data(), ws.branch.data(), n * hidden, model.rounding);
    if (fault_fires("residual.mixer-twice", {i, model.comm.rank(), batch.round})) {
      residual_add(ws.hidden.data(), ws.branch.data(), n * hidden, model.rounding);
    }
    norm_rows(model, ws.hidden.data(), layer.post_attention_norm, n, ws.normed.data());
    mlp_branch(model, layer.mlp, ws.normed.data(), batch, cursor, ws);
    tap(i, "mlp", ws.branch);
    if (fault_fires("residual.mlp-missing", {i, model.comm.rank(), batch.round})) {
      std::fill(ws.branch.begin(), ws.branch.end(), 0.0f);
    }
    residual_add(ws.hidden.data(), ws.branch.data(), n * hidden, model.rounding);
    plant_residual_faults({ws.hidden.data(), n, hidden});
    if (fault_fires("replicated.hidden-bit-flipped", {i, model.comm.rank(), batch.round})) {
      ws.hidden[0] = -ws.hidden[0];
    }
    tap(i, "out", ws.hidden);
  }
  norm_rows(model, ws.hidden.data(), model.weights.final_norm, n, ws.normed.data());
  if (fault_fires("replicated.bit-flipped", {-1, model.comm.rank(), batch.round})) {
    ws.normed[0] = -ws.normed[0];
  }
  if (hooks) pass("final_norm", ws.normed);
}

void compute_logits(const Model& model, const float* normed, int64_t n_columns,
                    LogitBuffers& buffers) {
  const int64_t vocab = model.config.vocab_size;
  const int64_t local = model.weights.dims.vocab_rows;
  const int n_ranks = model.comm.n_ranks();
  grow(buffers.logits, n_columns * vocab);
  if (n_ranks == 1) {
    linear_rows(model, model.weights.lm_head, normed, n_columns, buffers.logits.data(), vocab,
                Rounding::none);
    plant_logit_faults({buffers.logits.data(), n_columns, vocab}, 1);
    return;
  }
  grow(buffers.mine, n_columns * local);
  grow(buffers.by_rank, n_columns * vocab);
  linear_rows(model, model.weights.lm_head, normed, n_columns, buffers.mine.data(), local,
              Rounding::none);
  model.comm.all_gather(buffers.mine.data(), n_columns * local, buffers.by_rank.data());
  for (int64_t column = 0; column < n_columns; ++column) {
    for (int rank = 0; rank < n_ranks; ++rank) {
      std::copy_n(buffers.by_rank.data() + (rank * n_columns + column) * local, local,
                  buffers.logits.data() + column * vocab + rank * local);
    }
  }
  plant_logit_faults({buffers.logits.data(), n_columns, vocab}, n_ranks);
}

}  // namespace lockstep
