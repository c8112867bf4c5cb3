#include "engine/rank/branches.h"

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
#include "engine/ops/swiglu/swiglu.h"
#include "engine/rank/planted_faults.h"

namespace lockstep {
namespace {

int64_t n_rows_of(const MatrixPieces& pieces) {
  int64_t n = 0;
  for (const WeightMatrix& piece : pieces) n += piece.n_rows;
  return n;
}

// Rotates the first third of the pairs by T, the next by H, the last by W (a planted fault): one
// pass an axis, in which the pairs of the others keep still.
void rope_in_sections(const Model& model, const RopeArgs& rotation) {
  const auto n_pairs = static_cast<size_t>(rotation.rotary_dim / 2);
  const size_t section = (n_pairs + 2) / 3;
  for (size_t axis = 0; axis < 3; ++axis) {
    std::vector<RopePosition> positions;
    for (int64_t t = 0; t < rotation.n_tokens; ++t) {
      const int32_t position = rotation.positions[t][axis];
      positions.push_back({position, position, position});
    }
    std::vector<float> inv_freq(n_pairs, 0.0f);
    for (size_t i = axis * section; i < std::min(n_pairs, (axis + 1) * section); ++i) {
      inv_freq[i] = rotation.inv_freq[i];
    }
    RopeArgs pass = rotation;
    pass.positions = positions.data();
    pass.inv_freq = inv_freq.data();
    rope(pass, model.pool);
  }
}

// Norm over heads of head_dim values that lie `stride` apart, then rotation, then the Hadamard
// transform where keys are rotated. `out` is dense. `shift_positions` is a planted fault.
void prepare_heads(const Model& model, const float* x, int64_t stride,
                   const std::vector<float>& norm, const Batch& batch, int n_heads,
                   bool shift_positions, float* out) {
  const int head_dim = model.config.head_dim;
  const int64_t n = batch.n_columns();
  RmsNormArgs normalise{x,        stride,        norm.data(), out,
                        head_dim, n * n_heads,   head_dim,    model.config.rms_norm_eps,
                        1.0f,     model.rounding};
  plant_norm_faults(normalise);
  rmsnorm(normalise, model.pool);
  std::vector<RopePosition> shifted;
  const RopePosition* positions = batch.positions.data();
  const bool reversed = fault_fires("rope.direction-reversed");
  if (shift_positions || reversed) {
    shifted = batch.positions;
    for (RopePosition& position : shifted) {
      for (int32_t& axis : position) axis = reversed ? -axis : axis + 1;
    }
    positions = shifted.data();
  }
  RopeArgs rotation{
      out,      int64_t{n_heads} * head_dim, positions,     model.inv_freq.data(), n, n_heads,
      head_dim, model.config.rotary_dim,     model.rounding};
  if (fault_fires("rope.half-the-pairs")) rotation.rotary_dim /= 2;
  std::vector<float> next_frequencies;
  if (fault_fires("rope.frequencies-of-next-pair")) {
    next_frequencies.assign(model.inv_freq.begin() + 1, model.inv_freq.end());
    next_frequencies.push_back(model.inv_freq.front());
    rotation.inv_freq = next_frequencies.data();
  }
  if (fault_fires("mrope.sections-contiguous", {-1, model.comm.rank(), batch.round})) {
    rope_in_sections(model, rotation);
  } else {
    rope(rotation, model.pool);
  }
  if (model.rotate_keys) {
    hadamard(out, head_dim, n * n_heads, head_dim, model.rounding, model.pool);
  }
}

// Exchanges the query and gate halves of every head (a planted fault).
void swap_query_and_gate(float* qg, int64_t n_heads_total, int head_dim) {
  for (int64_t i = 0; i < n_heads_total; ++i) {
    float* head = qg + i * 2 * head_dim;
    std::swap_ranges(head, head + head_dim, head + head_dim);
  }
}

// A page table that reads every page one place too late (a planted fault).
std::vector<uint32_t> next_pages(std::vector<uint32_t> pages) {
  for (size_t i = 0; i + 1 < pages.size(); ++i) pages[i] = pages[i + 1];
  return pages;
}

// Rows of one GDN layer that a span's recurrence reads.
struct GdnInputs {
  const float* m;          // [n_tokens, channels] raw projections
  const float* log_decay;  // [n_tokens, heads]
  const float* beta;       // [n_tokens, heads]
};

// Convolution and delta rule of n_tokens columns; advances the state, writes out [n_tokens,
// v_width].
void run_gdn(const Model& model, const GdnWeights& weights, const GdnInputs& in, Phase phase,
             int64_t first_position, int64_t n_tokens, GdnState& state, float* mixed, float* out) {
  const GdnConfig& gdn = model.weights.dims.gdn;
  const int64_t channels = gdn.conv_channels();
  causal_conv({in.m, channels, weights.conv.data(), state.conv.data(), mixed, channels, n_tokens,
               channels, model.rounding},
              model.pool);
  GatedDeltaArgs args{mixed,
                      mixed + gdn.k_width(),
                      mixed + 2 * gdn.k_width(),
                      channels,
                      channels,
                      in.log_decay,
                      in.beta,
                      state.state.data(),
                      out,
                      gdn.v_width(),
                      first_position,
                      n_tokens,
                      gdn.n_k_heads,
                      gdn.n_v_heads,
                      gdn.k_head_dim,
                      gdn.v_head_dim,
                      model.rounding};
  plant_delta_faults(args);
  if (phase == Phase::prefill) {
    gated_delta_chunked(args, model.pool);
  } else {
    gated_delta_recurrent(args, model.pool);
  }
  plant_state_rounding(state.state.data(), static_cast<int64_t>(state.state.size()));
}

void keep_record(const GdnInputs& in, const GdnState& state, const GdnConfig& gdn, int64_t n_tokens,
                 GdnRecord& record) {
  record.start = state;
  record.m.assign(in.m, in.m + n_tokens * gdn.conv_channels());
  record.log_decay.assign(in.log_decay, in.log_decay + n_tokens * gdn.n_v_heads);
  record.beta.assign(in.beta, in.beta + n_tokens * gdn.n_v_heads);
}

}  // namespace

void grow(std::vector<float>& buffer, int64_t size) {
  if (static_cast<int64_t>(buffer.size()) < size) buffer.resize(static_cast<size_t>(size));
}

void norm_rows(const Model& model, const float* x, const std::vector<float>& weight, int64_t n_rows,
               float* out) {
  const int64_t width = model.config.hidden_size;
  RmsNormArgs args{x,     width,         weight.data(), out,
                   width, n_rows,        width,         model.config.rms_norm_eps,
                   1.0f,  model.rounding};
  plant_norm_faults(args);
  rmsnorm(args, model.pool);
}

void linear_rows(const Model& model, const MatrixPieces& pieces, const float* x, int64_t n_columns,
                 float* out, int64_t out_width, Rounding rounding) {
  for (const WeightMatrix& piece : pieces) {
    linear({piece, x, piece.n_cols, out, out_width, n_columns, rounding}, model.pool);
    out += piece.n_rows;
  }
}

void LinearBatch::add(const MatrixPieces& pieces, float* out, int64_t out_width) {
  for (const WeightMatrix& piece : pieces) {
    args_.push_back({piece, x_, piece.n_cols, out, out_width, n_columns_, model_.rounding});
    out += piece.n_rows;
  }
}

void LinearBatch::add(const MatrixPieces& pieces, std::vector<float>& out) {
  const int64_t width = n_rows_of(pieces);
  grow(out, n_columns_ * width);
  add(pieces, out.data(), width);
}

void LinearBatch::run() {
  linear_group(args_, model_.pool);
}

void row_parallel(const Model& model, const MatrixHalves& halves, const std::vector<float>& x,
                  int64_t x_width, int64_t n_columns, Workspace& ws) {
  const int64_t hidden = model.config.hidden_size;
  grow(ws.branch, n_columns * hidden);
  grow(ws.partial, n_columns * hidden);
  float* outs[] = {ws.branch.data(), ws.partial.data()};
  // A planted fault leaves partial sums as they are until they have been added.
  const bool unrounded = fault_fires("comm.partials-unrounded");
  const Rounding exchange = unrounded ? Rounding::none : model.rounding;
  std::vector<LinearArgs> parts;
  int64_t first_column = 0;
  for (size_t part = 0; part < halves.size(); ++part) {
    parts.push_back(
        {halves[part], x.data() + first_column, x_width, outs[part], hidden, n_columns, exchange});
    first_column += halves[part].n_cols;
  }
  linear_group(parts, model.pool);
  // The partial sum of the last rank: this rank's own, or the second half on a single rank.
  const bool holds_last = model.comm.rank() == model.comm.n_ranks() - 1;
  if (holds_last && fault_fires("comm.partial-dropped")) {
    std::fill_n(outs[halves.size() - 1], n_columns * hidden, 0.0f);
  }
  plant_partial_faults({outs[0], n_columns, hidden}, halves.size() == 2 ? outs[1] : nullptr,
                       holds_last);
  if (halves.size() == 1) {
    model.comm.all_reduce(ws.branch.data(), n_columns * hidden, exchange);
  } else {
    sum_partials(ws.branch.data(), ws.partial.data(), ws.branch.data(), n_columns * hidden,
                 exchange);
  }
  if (unrounded) plant_late_rounding({ws.branch.data(), n_columns, hidden}, model.rounding);
}

namespace {

// Places of a pass through attention: [n, heads, query | gate], [n, kv heads, head_dim] twice.
std::vector<float>& query_gate_rows(Workspace& ws) {
  return ws.wide[0];
}
std::vector<float>& key_rows(Workspace& ws) {
  return ws.wide[2];
}
std::vector<float>& value_rows(Workspace& ws) {
  return ws.wide[3];
}

// Norm, rotation and pages of the keys and values that the projections have left.
void store_projected_kv(const Model& model, const AttentionWeights& weights, const Batch& batch,
                        const LayerCursor& cursor, Workspace& ws) {
  const int n_kv_heads = model.weights.dims.n_kv_heads;
  const int64_t width = int64_t{n_kv_heads} * model.config.head_dim;
  std::vector<float>& k = key_rows(ws);
  std::vector<float>& v = value_rows(ws);
  prepare_heads(model, k.data(), model.config.head_dim, weights.k_norm, batch, n_kv_heads, false,
                k.data());
  const FaultSite site{cursor.layer, model.comm.rank(), batch.round};
  for (const Span& span : batch.spans) {
    plant_kv_faults({k.data() + span.column * width, span.n_tokens, width},
                    {v.data() + span.column * width, span.n_tokens, width},
                    span.phase == Phase::decode, site);
    int64_t first = span.first_position;
    if (first > 0 && fault_fires("kv.write-position-minus-1", site)) --first;
    kv_write({model.kv.view(cursor.kv_layer, span.sequence->page_table),
              k.data() + span.column * width, v.data() + span.column * width, width, width, first,
              span.n_tokens});
  }
}

void attend_projected(const Model& model, const AttentionWeights& weights, const Batch& batch,
                      const LayerCursor& cursor, Workspace& ws) {
  const int64_t n = batch.n_columns();
  const int head_dim = model.config.head_dim;
  const int n_heads = model.weights.dims.n_heads;
  const int64_t width = int64_t{n_heads} * head_dim;
  const FaultSite site{cursor.layer, model.comm.rank(), batch.round};
  std::vector<float>& qg = query_gate_rows(ws);
  std::vector<float>& q = ws.wide[1];
  std::vector<float>& out = ws.wide[4];
  grow(q, n * width);
  grow(out, n * width);

  if (fault_fires("attention.q-gate-swapped", site)) {
    swap_query_and_gate(qg.data(), n * n_heads, head_dim);
  }
  const bool shift_positions = fault_fires("attention.rope-position-plus-1", site);
  prepare_heads(model, qg.data(), 2 * head_dim, weights.q_norm, batch, n_heads, shift_positions,
                q.data());
  plant_head_faults({qg.data(), n, 2 * width}, {q.data(), n, width}, n_heads,
                    model.weights.dims.n_kv_heads, head_dim, site);
  const bool shift_pages = fault_fires("kv.page-table-off-by-one", site);
  for (const Span& span : batch.spans) {
    std::vector<uint32_t> shifted;
    if (shift_pages) shifted = next_pages(span.sequence->page_table);
    const std::vector<uint32_t>& pages = shift_pages ? shifted : span.sequence->page_table;
    AttentionArgs args{q.data() + span.column * width,
                       width,
                       qg.data() + span.column * 2 * width + head_dim,
                       2 * width,
                       head_dim,
                       2 * head_dim,
                       out.data() + span.column * width,
                       width,
                       model.kv.view(cursor.kv_layer, pages),
                       span.first_position,
                       span.n_tokens,
                       n_heads,
                       1.0f / std::sqrt(static_cast<float>(head_dim)),
                       model.rounding,
                       span.first_visible};
    plant_attention_faults(args, span.phase == Phase::decode, site);
    attention(args, model.pool);
  }
  if (fault_fires("attention.k-tail-dropped", site)) {
    for (int64_t t = 0; t < n; ++t) std::fill_n(out.data() + (t + 1) * width - 16, 16, 0.0f);
  }
  row_parallel(model, weights.o_proj, out, width, n, ws);  // [n, hidden]
}

}  // namespace

void store_kv(const Model& model, const AttentionWeights& weights, const float* normed,
              const Batch& batch, const LayerCursor& cursor, Workspace& ws) {
  LinearBatch products(model, normed, batch.n_columns());
  products.add(weights.k_proj, key_rows(ws));
  products.add(weights.v_proj, value_rows(ws));
  products.run();
  store_projected_kv(model, weights, batch, cursor, ws);
}

void attend(const Model& model, const AttentionWeights& weights, const float* normed,
            const Batch& batch, const LayerCursor& cursor, Workspace& ws) {
  LinearBatch products(model, normed, batch.n_columns());
  products.add(weights.q_proj, query_gate_rows(ws));
  products.run();
  attend_projected(model, weights, batch, cursor, ws);
}

void attention_branch(const Model& model, const AttentionWeights& weights, const float* normed,
                      const Batch& batch, const LayerCursor& cursor, Workspace& ws) {
  LinearBatch products(model, normed, batch.n_columns());
  products.add(weights.q_proj, query_gate_rows(ws));
  products.add(weights.k_proj, key_rows(ws));
  products.add(weights.v_proj, value_rows(ws));
  products.run();
  store_projected_kv(model, weights, batch, cursor, ws);
  attend_projected(model, weights, batch, cursor, ws);
}

void gdn_branch(const Model& model, const GdnWeights& weights, const float* normed,
                const Batch& batch, const LayerCursor& cursor, Workspace& ws) {
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
  std::vector<float>& mixed = ws.wide[5];
  grow(ab, 2 * n * heads);
  grow(gates, 2 * n * heads);
  grow(out, n * v_width);
  grow(mixed, n * channels);
  float* a = ab.data();
  float* b = a + n * heads;
  float* log_decay = gates.data();
  float* beta = log_decay + n * heads;

  LinearBatch products(model, normed, n);
  products.add(weights.in_proj_qkv, m);  // [n, Q | K | V]
  products.add(weights.in_proj_z, z);    // [n, v heads, dv]
  products.add(weights.in_proj_a, a, heads);
  products.add(weights.in_proj_b, b, heads);
  products.run();
  gdn_gates({a, b, weights.a_log.data(), weights.dt_bias.data(), log_decay, beta, n,
             static_cast<int>(heads)});
  const FaultSite site{cursor.layer, model.comm.rank(), batch.round};
  plant_gate_faults({log_decay, n, heads}, {beta, n, heads}, site);
  plant_output_gate_faults({z.data(), n, v_width}, gdn.v_head_dim, site);
  for (const Span& span : batch.spans) {
    const auto gdn_layer = static_cast<size_t>(cursor.gdn_layer);
    GdnState& state = span.sequence->gdn[gdn_layer];
    const GdnInputs in{m.data() + span.column * channels, log_decay + span.column * heads,
                       beta + span.column * heads};
    if (span.phase == Phase::prefill && fault_fires("gdn.conv-state-lost-between-chunks", site)) {
      std::fill(state.conv.begin(), state.conv.end(), 0.0f);
    }
    if (span.phase == Phase::decode && span.n_tokens > 1) {
      keep_record(in, state, gdn, span.n_tokens, span.sequence->records[gdn_layer]);
    }
    const bool lose_update =
        span.phase == Phase::decode && fault_fires("gdn.decode-update-lost", site);
    const GdnState before = lose_update ? state : GdnState{};
    run_gdn(model, weights, in, span.phase, span.first_position, span.n_tokens, state,
            mixed.data() + span.column * channels, out.data() + span.column * v_width);
    if (lose_update) state.state = before.state;
  }
  gated_rmsnorm({out.data(), z.data(), weights.norm.data(), out.data(), n * heads, gdn.v_head_dim,
                 model.config.rms_norm_eps, model.rounding},
                model.pool);
  row_parallel(model, weights.out_proj, out, v_width, n, ws);  // [n, hidden]
}

void mlp_branch(const Model& model, const MlpWeights& weights, const float* normed,
                const Batch& batch, const LayerCursor& cursor, Workspace& ws) {
  const int64_t n_columns = batch.n_columns();
  const FaultSite site{cursor.layer, model.comm.rank(), batch.round};
  const int64_t width = model.weights.dims.intermediate_size;
  LinearBatch products(model, normed, n_columns);
  products.add(weights.gate_proj, ws.wide[0]);  // [n, width]
  products.add(weights.up_proj, ws.wide[1]);    // [n, width]
  products.run();
  if (fault_fires("mlp.gate-up-swapped", site)) std::swap(ws.wide[0], ws.wide[1]);
  swiglu({ws.wide[0].data(), width, ws.wide[1].data(), width, ws.wide[0].data(), width, n_columns,
          width, model.rounding},
         model.pool);
  if (fault_fires("mlp.down-k-tail-dropped", site)) {
    for (int64_t t = 0; t < n_columns; ++t) {
      std::fill_n(ws.wide[0].data() + (t + 1) * width - 16, 16, 0.0f);
    }
  }
  row_parallel(model, weights.down_proj, ws.wide[0], width, n_columns, ws);  // [n, hidden]
}

void rewind_gdn(const Model& model, Sequence& sequence, int64_t n_keep, Workspace& ws) {
  const GdnConfig& gdn = model.weights.dims.gdn;
  if (fault_fires("speculation.rollback-off-by-one")) --n_keep;
  grow(ws.wide[4], n_keep * gdn.v_width());
  grow(ws.wide[5], n_keep * gdn.conv_channels());
  size_t gdn_layer = 0;
  for (const LayerWeights& layer : model.weights.layers) {
    if (layer.kind != LayerKind::gated_delta_net) continue;
    GdnRecord& record = sequence.records[gdn_layer];
    GdnState& state = sequence.gdn[gdn_layer++];
    if (fault_fires("speculation.conv-state-stale")) record.start.conv = state.conv;
    if (fault_fires("speculation.delta-state-stale")) record.start.state = state.state;
    std::swap(state, record.start);
    run_gdn(model, layer.gdn, {record.m.data(), record.log_decay.data(), record.beta.data()},
            Phase::decode, 0, n_keep, state, ws.wide[5].data(), ws.wide[4].data());
  }
}

}  // namespace lockstep
