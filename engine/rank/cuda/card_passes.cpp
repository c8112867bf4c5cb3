#include "engine/rank/cuda/card_passes.h"

#include <fmt/core.h>

#include "engine/base/fault.h"
#include "engine/ops/embedding/cuda/embedding_cuda.h"
#include "engine/ops/residual_add/cuda/residual_add_cuda.h"
#include "engine/ops/rope/cuda/rope_cuda.h"
#include "engine/rank/row_hooks.h"

namespace lockstep {
namespace {

void make_angles(CardModel& card, const CardBatch& pass) {
  rope_angles_cuda(pass.inputs.positions, card.inv_freq, pass.batch.n_columns(),
                   card.model.config.rotary_dim / 2, card.buffers.angles, *card.stream);
  card.clock.mark("embedding and angles");
}

// The embedding of every column, a picture's rows in place of its pads.
void embed(CardModel& card, const CardBatch& pass, uint16_t* out) {
  const int64_t hidden = card.model.config.hidden_size;
  const WeightMatrix& table = card.weights.embedding;
  EmbeddingCudaArgs args;
  args.codec = table.codec;
  args.table = table.codes;
  args.row_bytes = table.row_bytes;
  args.n_table_rows = table.n_rows;
  args.n_cols = hidden;
  args.ids = pass.inputs.ids;
  args.n_tokens = pass.batch.n_columns();
  args.out = out;
  embedding_cuda(args, *card.stream);
  card.clock.mark("embedding and angles");
  const std::vector<const float*>& rows = pass.batch.embedding_rows;
  for (size_t column = 0; column < rows.size(); ++column) {
    if (rows[column] == nullptr) continue;
    card.rows.write(rows[column], hidden, out + static_cast<int64_t>(column) * hidden);
  }
}

// Taps and injected rows of the place `name`: they see and change the rows on the host.
void pass_hooks(CardModel& card, const CardBatch& pass, const std::string& name, uint16_t* x) {
  const int64_t hidden = card.model.config.hidden_size;
  const int64_t n = pass.batch.n_columns() * hidden;
  const float* seen = card.rows.read(x, n);
  std::vector<float> values(seen, seen + n);
  pass_row_hooks(pass.batch, name, hidden, Rounding::bf16, values.data());
  card.rows.write(values.data(), n, x);
}

// Planted faults of rows that both ranks hold.
void plant_row_fault(CardModel& card, const CardBatch& pass, const char* fault, int layer,
                     uint16_t* x) {
  if (!fault_fires(fault, {layer, card.model.comm.rank(), pass.batch.round})) return;
  const float flipped = -*card.rows.read(x, 1);
  card.rows.write(&flipped, 1, x);
}

// As add_branch_and_norm, in single steps with hooks between them. `leaves_layer`: hidden is the
// layer's output then.
void add_hooked_branch_and_norm(CardModel& card, const CardBatch& pass, int layer,
                                const char* branch, bool leaves_layer, const float* norm) {
  const int64_t hidden = card.model.config.hidden_size;
  const int64_t n = pass.batch.n_columns();
  PassBuffers& buffers = card.buffers;
  if (card.model.comm.n_ranks() == 1) {
    sum_partials_cuda(buffers.partials[0], buffers.partials[1], buffers.partials[0], n * hidden,
                      *card.stream);
  }
  pass_hooks(card, pass, fmt::format("layers.{}.{}", layer, branch), buffers.partials[0]);
  residual_add_cuda(buffers.hidden, buffers.partials[0], n * hidden, *card.stream);
  if (leaves_layer) {
    plant_row_fault(card, pass, "replicated.hidden-bit-flipped", layer, buffers.hidden);
    pass_hooks(card, pass, fmt::format("layers.{}.out", layer), buffers.hidden);
  }
  norm_rows(card, buffers.hidden, norm, n, buffers.normed, hidden);
}

}  // namespace

void card_forward(CardModel& card, const CardBatch& pass) {
  const int64_t n = pass.batch.n_columns();
  const int64_t hidden = card.model.config.hidden_size;
  PassBuffers& buffers = card.buffers;
  const bool hooks = has_row_hooks(pass.batch) || fault_selected();
  const auto finish = [&](int layer, const char* branch, bool leaves_layer, const float* norm) {
    if (hooks) {
      add_hooked_branch_and_norm(card, pass, layer, branch, leaves_layer, norm);
    } else {
      add_branch_and_norm(card, buffers.hidden, norm, n);
    }
  };

  make_angles(card, pass);
  embed(card, pass, buffers.hidden);
  if (hooks) pass_hooks(card, pass, "embed", buffers.hidden);
  norm_rows(card, buffers.hidden, card.weights.layers.front().input_norm, n, buffers.normed,
            hidden);
  LayerCursor cursor;
  const int n_layers = card.model.config.n_layers();
  for (int i = 0; i < n_layers; ++i) {
    const CardLayer& layer = card.weights.layers[static_cast<size_t>(i)];
    cursor.layer = i;
    if (layer.kind == LayerKind::full_attention) {
      attention_branch(card, layer, pass, cursor);
      ++cursor.kv_layer;
    } else {
      gdn_branch(card, layer, pass, cursor);
      ++cursor.gdn_layer;
    }
    finish(i, "mixer", false, layer.post_attention_norm);
    mlp_branch(card, layer, pass);
    const bool last = i + 1 == n_layers;
    finish(i, "mlp", true,
           last ? card.weights.final_norm
                : card.weights.layers[static_cast<size_t>(i) + 1].input_norm);
  }
  plant_row_fault(card, pass, "replicated.bit-flipped", -1, buffers.normed);
  if (hooks) pass_hooks(card, pass, "final_norm", buffers.normed);
}

void card_logits(CardModel& card, int64_t first_column, int64_t n_columns) {
  const int64_t hidden = card.model.config.hidden_size;
  const uint16_t* rows = card.buffers.normed + first_column * hidden;
  const bool alone = card.transport == nullptr;
  float* out = alone ? card.buffers.logits : card.buffers.local_logits;
  const int64_t stride = alone ? card.logits_stride : card.local_logits_stride;
  multiply(card, LinearPass::decode, rows, hidden, n_columns,
           {{card.weights.lm_head, out, stride, CudaOutput::fp32}});
  card.clock.mark("product lm_head");
  if (alone) return;
  const int64_t n_bytes = int64_t{card.model.weights.dims.vocab_rows} * 4;
  for (int64_t column = 0; column < n_columns; ++column) {
    card.transport->all_gather(out + column * stride, n_bytes,
                               card.buffers.logits + column * card.logits_stride, *card.stream);
  }
  card.clock.mark("exchange of logits");
}

namespace {

// Rows of the MTP layer to buffers.mtp_x, and their norm to buffers.normed.
void enter_mtp(CardModel& card, const CardBatch& pass, uint16_t* hidden_rows) {
  const int64_t n = pass.batch.n_columns();
  const int64_t hidden = card.model.config.hidden_size;
  const CardMtp& mtp = card.weights.mtp;
  PassBuffers& buffers = card.buffers;
  make_angles(card, pass);
  embed(card, pass, buffers.mtp_x);
  norm_rows(card, buffers.mtp_x, mtp.embedding_norm, n, buffers.mtp_joined, 2 * hidden);
  norm_rows(card, hidden_rows, mtp.hidden_norm, n, buffers.mtp_joined + hidden, 2 * hidden);
  multiply(card, pass.products, buffers.mtp_joined, 2 * hidden, n,
           {{mtp.fc, buffers.mtp_x, hidden}});
  card.clock.mark("product mtp.fc");
  norm_rows(card, buffers.mtp_x, mtp.layer.input_norm, n, buffers.normed, hidden);
}

// What follows the attention of the MTP layer's rows x.
void leave_mtp(CardModel& card, const CardBatch& pass, uint16_t* x) {
  const int64_t n = pass.batch.n_columns();
  const CardMtp& mtp = card.weights.mtp;
  add_branch_and_norm(card, x, mtp.layer.post_attention_norm, n);
  mlp_branch(card, mtp.layer, pass);
  add_branch_and_norm(card, x, mtp.norm, n);
}

}  // namespace

void card_mtp_store(CardModel& card, const CardBatch& pass, uint16_t* hidden_rows) {
  enter_mtp(card, pass, hidden_rows);
  store_kv(card, card.weights.mtp.layer, pass, card.model.config.n_kv_layers());
}

void card_mtp_attend(CardModel& card, const CardBatch& last, uint16_t* x) {
  const int64_t hidden = card.model.config.hidden_size;
  const CardMtp& mtp = card.weights.mtp;
  make_angles(card, last);
  norm_rows(card, x, mtp.layer.input_norm, last.batch.n_columns(), card.buffers.normed, hidden);
  attend(card, mtp.layer, last, card.model.config.n_kv_layers());
  leave_mtp(card, last, x);
}

void card_mtp_step(CardModel& card, const CardBatch& pass, uint16_t* hidden_rows) {
  enter_mtp(card, pass, hidden_rows);
  LayerCursor cursor;
  cursor.kv_layer = card.model.config.n_kv_layers();
  attention_branch(card, card.weights.mtp.layer, pass, cursor);
  leave_mtp(card, pass, card.buffers.mtp_x);
}

}  // namespace lockstep
