#include "engine/rank/mixers.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/fault.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/causal_conv/causal_conv.h"
#include "engine/ops/gated_delta/gated_delta.h"
#include "engine/ops/gated_rmsnorm/gated_rmsnorm.h"
#include "engine/ops/gdn_gates/gdn_gates.h"
#include "engine/ops/hadamard/hadamard.h"
#include "engine/ops/kv_write/kv_write.h"
#include "engine/ops/linear/linear.h"
#include "engine/ops/residual_add/residual_add.h"
#include "engine/ops/rmsnorm/rmsnorm.h"
#include "engine/ops/rope/rope.h"

namespace lockstep {
namespace {

void grow(std::vector<float>& buffer, int64_t size) {
  if (static_cast<int64_t>(buffer.size()) < size) buffer.resize(static_cast<size_t>(size));
}

int64_t n_rows_of(const MatrixPieces& pieces) {
  int64_t n = 0;
  for (const WeightMatrix& piece : pieces) n += piece.n_rows;
  return n;
}

std::vector<RopePosition> rope_positions(const Model& model, const Batch& batch, int layer) {
  std::vector<RopePosition> positions = batch.positions;
  if (fault_fires("attention.rope-position-plus-1", {layer, model.comm.rank(), batch.round})) {
    for (RopePosition& position : positions) {
      for (int32_t& axis : position) ++axis;
    }
  }
  return positions;
}

// Exchanges the query and gate halves of every head (a planted fault).
void swap_query_and_gate(float* qg, int64_t n_heads_total, int head_dim) {
  for (int64_t i = 0; i < n_heads_total; ++i) {
    float* head = qg + i * 2 * head_dim;
    std::swap_ranges(head, head + head_dim, head + head_dim);
  }
}

}  // namespace

void linear_rows(const Model& model, const MatrixPieces& pieces, const float* x, int64_t n_columns,
                 float* out, int64_t out_width, Rounding rounding) {
  for (const WeightMatrix& piece : pieces) {
    linear({piece, x, piece.n_cols, out, out_width, n_columns, rounding}, model.pool);
    out += piece.n_rows;
  }
}

void linear_pieces(const Model& model, const MatrixPieces& pieces, const std::vector<float>& x,
                   int64_t n_columns, std::vector<float>& out) {
  const int64_t width = n_rows_of(pieces);
  grow(out, n_columns * width);
  linear_rows(model, pieces, x.data(), n_columns, out.data(), width, model.rounding);
}

void row_parallel(const Model& model, const MatrixHalves& halves, const std::vector<float>& x,
                  int64_t x_width, int64_t n_columns, Workspace& ws) {
  const int64_t hidden = model.config.hidden_size;
  float* outs[] = {ws.branch.data(), ws.partial.data()};
  int64_t first_column = 0;
  for (size_t part = 0; part < halves.size(); ++part) {
    linear({halves[part], x.data() + first_column, x_width, outs[part], hidden, n_columns,
            model.rounding},
           model.pool);
    first_column += halves[part].n_cols;
  }
  const int lost_rank = model.comm.n_ranks() == 1 ? 1 : model.comm.rank();
  if (fault_fires("comm.partial-dropped", {-1, lost_rank, -1})) {
    std::fill_n(outs[halves.size() - 1], n_columns * hidden, 0.0f);
  }
  if (halves.size() == 1) {
    model.comm.all_reduce(ws.branch.data(), n_columns * hidden, model.rounding);
  } else {
    sum_partials(ws.branch.data(), ws.partial.data(), ws.branch.data(), n_columns * hidden,
                 model.rounding);
  }
}

void attention_mixer(const Model& model, const AttentionWeights& weights, const Batch& batch,
                     const LayerCursor& cursor, Workspace& ws) {
  const int64_t n = batch.n_columns();
  const int head_dim = model.config.head_dim;
  const int n_heads = model.weights.dims.n_heads;
  const int n_kv_heads = model.weights.dims.n_kv_heads;
  const int64_t q_width = int64_t{n_heads} * head_dim;
  const int64_t kv_width = int64_t{n_kv_heads} * head_dim;
  const FaultSite site{cursor.layer, model.comm.rank(), batch.round};
  std::vector<float>& qg = ws.wide[0];
  std::vector<float>& q = ws.wide[1];
  std::vector<float>& k = ws.wide[2];
  std::vector<float>& v = ws.wide[3];
  std::vector<float>& out = ws.wide[4];
  grow(q, n * q_width);
  grow(out, n * q_width);

  linear_pieces(model, weights.q_proj, ws.normed, n, qg);  // [n, heads, query | gate]
  linear_pieces(model, weights.k_proj, ws.normed, n, k);   // [n, kv heads, head_dim]
  linear_pieces(model, weights.v_proj, ws.normed, n, v);   // [n, kv heads, head_dim]
  if (fault_fires("attention.q-gate-swapped", site)) {
    swap_query_and_gate(qg.data(), n * n_heads, head_dim);
  }
  const float eps = model.config.rms_norm_eps;
  rmsnorm({qg.data(), 2 * head_dim, weights.q_norm.data(), q.data(), head_dim, n * n_heads, head_dim,
           eps, 1.0f, model.rounding},
          model.pool);
  rmsnorm({k.data(), head_dim, weights.k_norm.data(), k.data(), head_dim, n * n_kv_heads, head_dim,
           eps, 1.0f, model.rounding},
          model.pool);
  const std::vector<RopePosition> positions = rope_positions(model, batch, cursor.layer);
  const int rotary_dim = model.config.rotary_dim;
  rope({q.data(), q_width, positions.data(), model.inv_freq.data(), n, n_heads, head_dim, rotary_dim,
        model.rounding},
       model.pool);
  rope({k.data(), kv_width, positions.data(), model.inv_freq.data(), n, n_kv_heads, head_dim,
        rotary_dim, model.rounding},
       model.pool);
  if (model.kv.shape().type == KvType::int8) {
    hadamard(q.data(), head_dim, n * n_heads, head_dim, model.rounding, model.pool);
    hadamard(k.data(), head_dim, n * n_kv_heads, head_dim, model.rounding, model.pool);
  }
  for (const Span& span : batch.spans) {
    const KvView cache = model.kv.view(cursor.kv_layer, span.sequence->page_table);
    kv_write({cache, k.data() + span.column * kv_width, v.data() + span.column * kv_width, kv_width,
              kv_width, span.first_position, span.n_tokens});
    attention({q.data() + span.column * q_width, q_width,
               qg.data() + span.column * 2 * q_width + head_dim, 2 * q_width, head_dim, 2 * head_dim,
               out.data() + span.column * q_width, q_width, cache, span.first_position,
               span.n_tokens, n_heads, 1.0f / std::sqrt(static_cast<float>(head_dim)),
               model.rounding},
              model.pool);
  }
  if (fault_fires("attention.k-tail-dropped", site)) {
    for (int64_t t = 0; t < n; ++t) std::fill_n(out.data() + (t + 1) * q_width - 16, 16, 0.0f);
  }
  row_parallel(model, weights.o_proj, out, q_width, n, ws);  // [n, hidden]
}

void gdn_mixer(const Model& model, const GdnWeights& weights, const Batch& batch,
               const LayerCursor& cursor, Workspace& ws) {
  const int64_t n = batch.n_columns();
  const GdnConfig& gdn = model.weights.dims.gdn;
  const int64_t channels = gdn.conv_channels();
  const int64_t v_width = gdn.v_width();
  const int64_t heads = gdn.n_v_heads;
  std::vector<float>& m = ws.wide[0];
  std::vector<float>& z = ws.wide[1];
  std::vector<float>& ab = ws.wide[2];
  std::vector<float>& gates = ws.wide[3];
  std::vector<float>& out = ws.wide[4];
  std::vector<float>& conv = ws.wide[5];
  grow(ab, 2 * n * heads);
  grow(gates, 2 * n * heads);
  grow(out, n * v_width);
  grow(conv, n * channels);
  float* a = ab.data();
  float* b = a + n * heads;
  float* log_decay = gates.data();
  float* beta = log_decay + n * heads;

  linear_pieces(model, weights.in_proj_qkv, ws.normed, n, m);  // [n, Q | K | V]
  linear_pieces(model, weights.in_proj_z, ws.normed, n, z);    // [n, v heads, dv]
  linear_rows(model, weights.in_proj_a, ws.normed.data(), n, a, heads, model.rounding);
  linear_rows(model, weights.in_proj_b, ws.normed.data(), n, b, heads, model.rounding);
  gdn_gates({a, b, weights.a_log.data(), weights.dt_bias.data(), log_decay, beta, n,
             static_cast<int>(heads)});
  for (const Span& span : batch.spans) {
    GdnState& state = span.sequence->gdn[static_cast<size_t>(cursor.gdn_layer)];
    const bool lose_conv = span.phase == Phase::prefill &&
                           fault_fires("gdn.conv-state-lost-between-chunks",
                                       {cursor.layer, model.comm.rank(), batch.round});
    if (lose_conv) std::fill(state.conv.begin(), state.conv.end(), 0.0f);
    float* mixed = conv.data() + span.column * channels;
    causal_conv({m.data() + span.column * channels, channels, weights.conv.data(), state.conv.data(),
                 mixed, channels, span.n_tokens, channels, model.rounding},
                model.pool);
    const GatedDeltaArgs args{mixed,
                              mixed + gdn.k_width(),
                              mixed + 2 * gdn.k_width(),
                              channels,
                              channels,
                              log_decay + span.column * heads,
                              beta + span.column * heads,
                              state.state.data(),
                              out.data() + span.column * v_width,
                              v_width,
                              span.first_position,
                              span.n_tokens,
                              gdn.n_k_heads,
                              gdn.n_v_heads,
                              gdn.k_head_dim,
                              gdn.v_head_dim,
                              model.rounding};
    if (span.phase == Phase::prefill) {
      gated_delta_chunked(args, model.pool);
    } else {
      gated_delta_recurrent(args, model.pool);
    }
  }
  gated_rmsnorm({out.data(), z.data(), weights.norm.data(), out.data(), n * heads, gdn.v_head_dim,
                 model.config.rms_norm_eps, model.rounding},
                model.pool);
  row_parallel(model, weights.out_proj, out, v_width, n, ws);  // [n, hidden]
}

}  // namespace lockstep
