#include "engine/rank/cuda/card_branches.h"

#include <cmath>

#include "engine/ops/attention/cuda/attention_cuda.h"
#include "engine/ops/causal_conv/cuda/causal_conv_cuda.h"
#include "engine/ops/gated_delta/cuda/gated_delta_cuda.h"
#include "engine/ops/gated_rmsnorm/cuda/gated_rmsnorm_cuda.h"
#include "engine/ops/gdn_gates/cuda/gdn_gates_cuda.h"
#include "engine/ops/prepare_heads/cuda/prepare_heads_cuda.h"
#include "engine/ops/rmsnorm/cuda/rmsnorm_cuda.h"
#include "engine/ops/swiglu/cuda/swiglu_cuda.h"

namespace lockstep {

namespace {

// All but where the product goes.
LinearCudaArgs product_args(const CardModel& card, const CardMatrix& matrix, LinearPass pass,
                            const uint16_t* x, int64_t x_stride, int64_t n_columns,
                            std::byte* prepared) {
  return {matrix.plan,
          matrix.bytes,
          x,
          x_stride,
          prepared,
          nullptr,
          0,
          n_columns,
          CudaOutput::bf16,
          card.device.facts().n_multiprocessors,
          pass};
}

}  // namespace

void multiply(CardModel& card, LinearPass pass, const uint16_t* x, int64_t x_stride,
              int64_t n_columns, std::initializer_list<CardProduct> products, bool beside) {
  Stream& stream = beside ? card.side.stream() : *card.stream;
  std::vector<LinearCudaArgs> all;
  for (const CardProduct& product : products) {
    const int64_t element = product.output == CudaOutput::fp32 ? 4 : 2;
    int64_t first_row = 0;
    for (const CardMatrix& piece : product.pieces) {
      LinearCudaArgs args = product_args(card, piece, pass, x, x_stride, n_columns,
                                         card.buffers.prepared[beside ? 1 : 0]);
      args.out = static_cast<std::byte*>(product.out) + first_row * element;
      args.out_stride = product.out_stride;
      args.output = product.output;
      all.push_back(args);
      first_row += piece.plan.n_rows;
    }
  }
  std::vector<bool> done(all.size());
  for (size_t first = 0; first < all.size(); ++first) {
    std::vector<LinearCudaArgs> group;
    for (size_t i = first; i < all.size(); ++i) {
      if (done[i] || !multiply_together(all[first].plan, all[i].plan)) continue;
      group.push_back(all[i]);
      done[i] = true;
    }
    if (!group.empty()) linear_group_cuda(group, stream);
  }
}

namespace {

// buffers.partials = half-K sums of x [n_columns, width]; over two ranks summed.
void row_parallel(CardModel& card, const CardPieces& halves, const uint16_t* x, int64_t x_width,
                  const CardBatch& pass, const char* what) {
  const int64_t n_columns = pass.batch.n_columns();
  const int64_t hidden = card.model.config.hidden_size;
  std::vector<LinearCudaArgs> products;
  int64_t first_column = 0;
  for (size_t part = 0; part < halves.size(); ++part) {
    LinearCudaArgs args = product_args(card, halves[part], pass.products, x + first_column, x_width,
                                       n_columns, card.buffers.prepared[part]);
    args.out = card.buffers.partials[part];
    args.out_stride = hidden;
    products.push_back(args);
    first_column += halves[part].plan.n_cols;
  }
  if (products.size() > 1) {
    linear_halves_cuda(products[0], products[1], *card.stream);
    card.clock.mark(what);
    return;
  }
  linear_cuda(products[0], *card.stream);
  card.clock.mark(what);
  card.transport->all_reduce(card.buffers.partials[0], n_columns * hidden, Rounding::bf16,
                             *card.stream);
  card.clock.mark("exchange of partial sums");
}

// Norm, rotation and transform of queries, of keys, and K and V into their pages, span by span.
void prepare_heads(CardModel& card, const CardLayer& layer, const CardBatch& pass, int kv_layer,
                   bool queries, bool keys) {
  const int head_dim = card.model.config.head_dim;
  const int n_heads = card.model.weights.dims.n_heads;
  const int64_t width = int64_t{n_heads} * head_dim;
  const int64_t kv_width = int64_t{card.model.weights.dims.n_kv_heads} * head_dim;
  const PassBuffers& buffers = card.buffers;
  for (size_t i = 0; i < pass.batch.spans.size(); ++i) {
    const Span& span = pass.batch.spans[i];
    PrepareHeadsCudaArgs args;
    if (queries) {
      args.q = buffers.wide[0] + span.column * 2 * width;
      args.q_stride = 2 * width;
      args.q_head_stride = 2 * head_dim;
      args.q_norm = layer.q_norm;
      args.q_out = buffers.wide[1] + span.column * width;
      args.n_heads = n_heads;
    }
    if (keys) {
      args.k = buffers.narrow[0] + span.column * kv_width;
      args.k_stride = kv_width;
      args.k_norm = layer.k_norm;
      args.v = buffers.narrow[1] + span.column * kv_width;
      args.v_stride = kv_width;
    }
    args.cache = card.kv_layer(kv_layer, span.sequence->slot);
    args.first_position = pass.inputs.first_positions + i;
    args.angles = buffers.angles + span.column * card.model.config.rotary_dim;
    args.n_pairs = card.model.config.rotary_dim / 2;
    args.rotate = card.model.rotate_keys;
    args.eps = card.model.config.rms_norm_eps;
    args.n_tokens = span.n_tokens;
    prepare_heads_cuda(args, *card.stream);
  }
  card.clock.mark("heads and KV write");
}

void attend_prepared(CardModel& card, const CardLayer& layer, const CardBatch& pass, int kv_layer) {
  const int head_dim = card.model.config.head_dim;
  const int64_t width = int64_t{card.model.weights.dims.n_heads} * head_dim;
  const PassBuffers& buffers = card.buffers;
  AttentionCudaPlan decode_plan = card.decode_attention;
  if (pass.n_segments > 0) decode_plan.n_segments = pass.n_segments;
  for (size_t i = 0; i < pass.batch.spans.size(); ++i) {
    const Span& span = pass.batch.spans[i];
    const KvView cache = card.kv_layer(kv_layer, span.sequence->slot);
    const bool decode = span.phase == Phase::decode;
    AttentionCudaArgs args{decode ? decode_plan : card.prefill_attention};
    args.q = buffers.wide[1] + span.column * width;
    args.q_stride = width;
    args.q_head_stride = head_dim;
    args.gate = buffers.wide[0] + span.column * 2 * width + head_dim;
    args.gate_stride = 2 * width;
    args.gate_head_stride = 2 * head_dim;
    args.out = buffers.wide[2] + span.column * width;
    args.out_stride = width;
    args.pool = cache.pool;
    args.page_table = cache.page_table;
    args.first_position = pass.inputs.first_positions + i;
    args.n_tokens = static_cast<int>(span.n_tokens);
    args.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    args.partials = buffers.attention;
    args.n_multiprocessors = card.device.facts().n_multiprocessors;
    attention_cuda(args, *card.stream);
  }
  card.clock.mark("attention");
  row_parallel(card, layer.o_proj, buffers.wide[2], width, pass, "product o");
}

}  // namespace

void attention_branch(CardModel& card, const CardLayer& layer, const CardBatch& pass,
                      const LayerCursor& cursor) {
  const int head_dim = card.model.config.head_dim;
  const int64_t width = int64_t{card.model.weights.dims.n_heads} * head_dim;
  const int64_t kv_width = int64_t{card.model.weights.dims.n_kv_heads} * head_dim;
  multiply(card, pass.products, card.buffers.normed, card.model.config.hidden_size,
           pass.batch.n_columns(),
           {{layer.q_proj, card.buffers.wide[0], 2 * width},
            {layer.k_proj, card.buffers.narrow[0], kv_width},
            {layer.v_proj, card.buffers.narrow[1], kv_width}});
  card.clock.mark("products q, k, v");
  prepare_heads(card, layer, pass, cursor.kv_layer, true, true);
  attend_prepared(card, layer, pass, cursor.kv_layer);
}

void store_kv(CardModel& card, const CardLayer& layer, const CardBatch& pass, int kv_layer) {
  const int64_t kv_width = int64_t{card.model.weights.dims.n_kv_heads} * card.model.config.head_dim;
  multiply(card, pass.products, card.buffers.normed, card.model.config.hidden_size,
           pass.batch.n_columns(),
           {{layer.k_proj, card.buffers.narrow[0], kv_width},
            {layer.v_proj, card.buffers.narrow[1], kv_width}});
  card.clock.mark("products q, k, v");
  prepare_heads(card, layer, pass, kv_layer, false, true);
}

void attend(CardModel& card, const CardLayer& layer, const CardBatch& pass, int kv_layer) {
  const int64_t width = int64_t{card.model.weights.dims.n_heads} * card.model.config.head_dim;
  multiply(card, pass.products, card.buffers.normed, card.model.config.hidden_size,
           pass.batch.n_columns(), {{layer.q_proj, card.buffers.wide[0], 2 * width}});
  card.clock.mark("products q, k, v");
  prepare_heads(card, layer, pass, kv_layer, true, false);
  attend_prepared(card, layer, pass, kv_layer);
}

namespace {

// Where a GDN layer of a slot keeps its states.
struct GdnPlace {
  float* state;
  uint16_t* window;
  float* gates;
};

GdnPlace gdn_place(const CardStates& states, int slot, int gdn_layer) {
  const int64_t index = int64_t{slot} * states.n_layers + gdn_layer;
  return {states.delta + index * states.delta_size, states.window + index * states.window_size,
          states.gates + index * states.gates_size};
}

GatedDeltaCudaArgs delta_args(CardModel& card) {
  const GdnConfig& gdn = card.model.weights.dims.gdn;
  const PassBuffers& buffers = card.buffers;
  GatedDeltaCudaArgs args{card.delta};
  args.q = buffers.mixed;
  args.k = buffers.mixed + gdn.k_width();
  args.v = buffers.mixed + 2 * gdn.k_width();
  args.row_stride = gdn.conv_channels();
  args.log_decay = buffers.log_decay;
  args.beta = buffers.beta;
  args.out = buffers.wide[2];
  args.out_stride = gdn.v_width();
  return args;
}

CausalConvCudaArgs conv_args(CardModel& card, const CardLayer& layer) {
  const int channels = card.model.weights.dims.gdn.conv_channels();
  CausalConvCudaArgs args;
  args.m = card.buffers.wide[0];
  args.m_stride = channels;
  args.weight = layer.conv;
  args.out = card.buffers.mixed;
  args.out_stride = channels;
  args.n_channels = channels;
  return args;
}

GdnGatesCudaArgs gates_args(CardModel& card, const CardLayer& layer) {
  GdnGatesCudaArgs args;
  args.a = card.buffers.narrow[0];
  args.b = card.buffers.narrow[1];
  args.stride = card.narrow_stride;
  args.a_log = layer.a_log;
  args.dt_bias = layer.dt_bias;
  args.log_decay = card.buffers.log_decay;
  args.beta = card.buffers.beta;
  args.n_heads = card.model.weights.dims.gdn.n_v_heads;
  return args;
}

// A prompt's chunk is one span, and its states are up to date.
void prefill_gdn(CardModel& card, const CardLayer& layer, const Span& span, int gdn_layer) {
  const GdnPlace place = gdn_place(card.states, span.sequence->slot, gdn_layer);
  CausalConvCudaArgs conv = conv_args(card, layer);
  conv.window = place.window;
  conv.n_tokens = span.n_tokens;
  causal_conv_prefill_cuda(conv, *card.stream);
  GdnGatesCudaArgs gates = gates_args(card, layer);
  gates.n_tokens = span.n_tokens;
  gdn_gates_prefill_cuda(gates, *card.stream);
  GatedDeltaCudaArgs delta = delta_args(card);
  delta.state = place.state;
  gated_delta_prefill_cuda(delta, span.first_position, span.n_tokens, card.buffers.delta,
                           *card.stream);
}

void decode_convolution(CardModel& card, const CardLayer& layer, const CardBatch& pass,
                        int gdn_layer) {
  const CardStates& states = card.states;
  CausalConvCudaArgs conv = conv_args(card, layer);
  conv.window = gdn_place(states, 0, gdn_layer).window;
  conv.slot_stride = states.n_layers * states.window_size;
  conv.spans = pass.inputs.rounds;
  conv.n_spans = static_cast<int>(pass.batch.spans.size());
  causal_conv_decode_cuda(conv, *card.stream);
  card.clock.mark("convolution");
}

void decode_gates(CardModel& card, const CardLayer& layer, const CardBatch& pass, int gdn_layer,
                  Stream& stream) {
  const CardStates& states = card.states;
  GdnGatesCudaArgs gates = gates_args(card, layer);
  gates.record = gdn_place(states, 0, gdn_layer).gates;
  gates.slot_stride = states.n_layers * states.gates_size;
  gates.spans = pass.inputs.rounds;
  gates.n_spans = static_cast<int>(pass.batch.spans.size());
  gdn_gates_decode_cuda(gates, stream);
}

void decode_delta(CardModel& card, const CardBatch& pass, int gdn_layer) {
  const CardStates& states = card.states;
  GatedDeltaCudaArgs delta = delta_args(card);
  delta.state = gdn_place(states, 0, gdn_layer).state;
  gated_delta_decode_cuda(delta, pass.inputs.rounds, static_cast<int>(pass.batch.spans.size()),
                          states.n_layers * states.delta_size, *card.stream);
  card.clock.mark("delta rule");
}

}  // namespace

void gdn_branch(CardModel& card, const CardLayer& layer, const CardBatch& pass,
                const LayerCursor& cursor) {
  const GdnConfig& gdn = card.model.weights.dims.gdn;
  const PassBuffers& buffers = card.buffers;
  const int64_t n = pass.batch.n_columns();
  const Span& first = pass.batch.spans.front();
  const bool decodes = first.phase == Phase::decode;
  // Few rows of another codec keep few multiprocessors busy for long; gates need nothing else.
  card.side.fork(*card.stream);
  multiply(card, pass.products, buffers.normed, card.model.config.hidden_size, n,
           {{layer.in_proj_a, buffers.narrow[0], card.narrow_stride},
            {layer.in_proj_b, buffers.narrow[1], card.narrow_stride}},
           true);
  if (decodes) decode_gates(card, layer, pass, cursor.gdn_layer, card.side.stream());
  multiply(card, pass.products, buffers.normed, card.model.config.hidden_size, n,
           {{layer.in_proj_qkv, buffers.wide[0], gdn.conv_channels()},
            {layer.in_proj_z, buffers.wide[1], gdn.v_width()}});
  card.clock.mark("products qkv, z");
  if (decodes) {
    decode_convolution(card, layer, pass, cursor.gdn_layer);
    card.side.join(*card.stream);
    decode_delta(card, pass, cursor.gdn_layer);
  } else {
    card.side.join(*card.stream);
    prefill_gdn(card, layer, first, cursor.gdn_layer);
  }
  GatedRmsNormCudaArgs norm;
  norm.x = buffers.wide[2];
  norm.x_stride = gdn.v_width();
  norm.z = buffers.wide[1];
  norm.z_stride = gdn.v_width();
  norm.weight = layer.norm;
  norm.out = buffers.wide[2];
  norm.out_stride = gdn.v_width();
  norm.n_tokens = n;
  norm.n_heads = gdn.n_v_heads;
  norm.eps = card.model.config.rms_norm_eps;
  gated_rmsnorm_cuda(norm, *card.stream);
  card.clock.mark("GDN norm");
  row_parallel(card, layer.out_proj, buffers.wide[2], gdn.v_width(), pass, "product out");
}

void replay_gdn(CardModel& card, const CardBatch& pass) {
  int gdn_layer = 0;
  for (const CardLayer& layer : card.weights.layers) {
    if (layer.kind != LayerKind::gated_delta_net) continue;
    decode_convolution(card, layer, pass, gdn_layer);
    decode_gates(card, layer, pass, gdn_layer, *card.stream);
    decode_delta(card, pass, gdn_layer++);
  }
}

namespace {

// buffers.wide[0] = silu(gate product) * up product, rows of whole pieces together.
void gated_products(CardModel& card, const CardLayer& layer, const CardBatch& pass, int64_t width) {
  const PassBuffers& buffers = card.buffers;
  int64_t first_row = 0;
  for (size_t piece = 0; piece < layer.gate_proj.size(); ++piece) {
    const auto product = [&](const CardPieces& pieces, uint16_t* out) {
      LinearCudaArgs args =
          product_args(card, pieces[piece], pass.products, buffers.normed,
                       card.model.config.hidden_size, pass.batch.n_columns(), buffers.prepared[0]);
      args.out = out + first_row;
      args.out_stride = width;
      return args;
    };
    linear_swiglu_cuda(product(layer.gate_proj, buffers.wide[0]),
                       product(layer.up_proj, buffers.wide[1]), *card.stream);
    first_row += layer.gate_proj[piece].plan.n_rows;
  }
  card.clock.mark("products gate, up, swiglu");
}

}  // namespace

void mlp_branch(CardModel& card, const CardLayer& layer, const CardBatch& pass) {
  const int64_t n_columns = pass.batch.n_columns();
  const int64_t width = card.model.weights.dims.intermediate_size;
  const PassBuffers& buffers = card.buffers;
  if (layer.gates_in_pairs) {
    gated_products(card, layer, pass, width);
  } else {
    multiply(card, pass.products, buffers.normed, card.model.config.hidden_size, n_columns,
             {{layer.gate_proj, buffers.wide[0], width}, {layer.up_proj, buffers.wide[1], width}});
    card.clock.mark("products gate, up");
    swiglu_cuda(
        {buffers.wide[0], width, buffers.wide[1], width, buffers.wide[0], width, n_columns, width},
        *card.stream);
    card.clock.mark("swiglu");
  }
  row_parallel(card, layer.down_proj, buffers.wide[0], width, pass, "product down");
}

namespace {

RmsNormCudaArgs norm_args(const CardModel& card, uint16_t* x, const float* norm, int64_t n_columns,
                          uint16_t* out, int64_t out_stride) {
  RmsNormCudaArgs args;
  args.x = x;
  args.x_stride = card.model.config.hidden_size;
  args.weight = norm;
  args.out = out;
  args.out_stride = out_stride;
  args.n_rows = n_columns;
  args.width = card.model.config.hidden_size;
  args.eps = card.model.config.rms_norm_eps;
  args.weight_offset = 1.0f;
  return args;
}

}  // namespace

void norm_rows(CardModel& card, uint16_t* x, const float* norm, int64_t n_columns, uint16_t* out,
               int64_t out_stride) {
  rmsnorm_cuda(norm_args(card, x, norm, n_columns, out, out_stride), *card.stream);
  card.clock.mark("norms");
}

void add_branch_and_norm(CardModel& card, uint16_t* x, const float* norm, int64_t n_columns) {
  RmsNormCudaArgs args =
      norm_args(card, x, norm, n_columns, card.buffers.normed, card.model.config.hidden_size);
  args.y0 = card.buffers.partials[0];
  if (card.model.comm.n_ranks() == 1) args.y1 = card.buffers.partials[1];
  rmsnorm_cuda(args, *card.stream);
  card.clock.mark("norms");
}

}  // namespace lockstep
