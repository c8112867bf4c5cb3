#include "engine/rank/cuda/card_model.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/ops/causal_conv/cuda/causal_conv_cuda.h"
#include "engine/ops/common/cuda/row_routes.h"
#include "engine/rank/cuda/pass_inputs.h"
#include "engine/rank/limits.h"
#include "engine/rank/memory_plan.h"

namespace lockstep {
namespace {

static_assert(kMaxDrafts + 1 <= kGdnRoundColumns && kMaxDrafts + 1 <= kAttentionTokens);

PassLimits limits_of(const Model& model, const EngineOptions& options) {
  const int64_t context = context_limit(model.config, options);
  PassLimits limits;
  limits.n_slots = options.n_slots;
  limits.n_decode = decode_columns(options);
  limits.n_columns = std::max(std::min(options.prefill_grid, context) + 1, limits.n_decode);
  limits.n_gdn_rows = std::max(limits.n_columns, int64_t{options.n_slots} * kGdnRoundRows);
  limits.n_pages = KvCache::pages_for(context) + 1;
  return limits;
}

AttentionShape attention_shape(const Model& model, const EngineOptions& options) {
  return {model.weights.dims.n_heads, model.weights.dims.n_kv_heads, model.config.head_dim,
          options.kv_type, context_limit(model.config, options)};
}

AttentionCudaPlan attention_plan(const Model& model, const EngineOptions& options,
                                 AttentionPath path, const DeviceFacts& facts) {
  return plan_attention_cuda(attention_shape(model, options), path,
                             attention_family(path, options.kv_type, facts), {},
                             facts.block_shared_bytes);
}

// What the row ops of a pass need, so that a width without a kernel is an error at load.
void require_row_routes(const Model& model, const EngineOptions& options) {
  require_row_route(RowOp::rmsnorm, model.config.hidden_size);
  require_row_route(RowOp::embedding, model.config.hidden_size);
  require_row_route(RowOp::swiglu, model.weights.dims.intermediate_size);
  require_row_route(RowOp::head, model.config.head_dim);
  require_row_route(RowOp::rotation, model.config.rotary_dim / 2);
  require_kv_route(options.kv_type, model.config.head_dim);
}

}  // namespace

CardModel::CardModel(const Model& shared, const EngineOptions& options)
    : model(shared),
      device(*options.device),
      through_host(shared.comm.n_ranks() > 1 && options.transport == nullptr
                       ? make_staged_communicator(shared.comm)
                       : nullptr),
      transport(through_host != nullptr ? through_host.get() : options.transport),
      stream(watched_stream(device.new_stream(), transport)),
      side(device),
      clock(static_cast<cudaStream_t>(stream->native())),
      rows(*stream),
      limits(limits_of(shared, options)),
      decode_attention(attention_plan(shared, options, AttentionPath::decode, device.facts())),
      prefill_attention(attention_plan(shared, options, AttentionPath::prefill, device.facts())),
      delta(plan_gated_delta_cuda(
          shared.weights.dims.gdn.n_k_heads, shared.weights.dims.gdn.n_v_heads,
          shared.weights.dims.gdn.k_head_dim, shared.weights.dims.gdn.v_head_dim, limits.n_columns,
          family_of_card(device.facts()), device.facts())) {
  require_row_routes(model, options);
  ArenaPlan plan;
  CardUpload upload(device.facts(), plan);
  upload.add(model.weights, weights);
  upload.add("inverse frequencies", model.inv_freq, inv_freq);
  book(plan, "KV pages", kv_bytes(model.kv.shape()), kv_);
  book_states(plan);
  book_buffers(plan, upload);
  arena_ = std::make_unique<Arena>(device, std::move(plan));
  upload.upload(*arena_, device, *stream, model.pool);
  for (const Place& place : places_) place.set(arena_->at(place.block));
  stream->fill(states.delta, 0, states.delta_size * states.n_layers * limits.n_slots * 4);
  stream->fill(states.window, 0, states.window_size * states.n_layers * limits.n_slots * 2);
  stream->fill(states.gates, 0, states.gates_size * states.n_layers * limits.n_slots * 4);
  stream->fill(kv_, 0, kv_bytes(model.kv.shape()));
  stream->synchronize();
}

template <typename T>
void CardModel::book(ArenaPlan& plan, const char* name, int64_t n_values, T*& target) {
  const int64_t n_bytes = n_values * static_cast<int64_t>(sizeof(T));
  places_.push_back(
      {plan.add(name, n_bytes), [&target](std::byte* at) { target = reinterpret_cast<T*>(at); }});
}

void CardModel::book_states(ArenaPlan& plan) {
  const GdnConfig& gdn = model.weights.dims.gdn;
  states.n_layers = model.config.n_layers() - model.config.n_kv_layers();
  states.delta_size = int64_t{gdn.n_v_heads} * gdn.k_head_dim * gdn.v_head_dim;
  states.window_size = int64_t{kConvWindowRows} * gdn.conv_channels();
  states.gates_size = int64_t{2} * kGdnRoundColumns * gdn.n_v_heads;
  const int64_t n = int64_t{limits.n_slots} * states.n_layers;
  book(plan, "GDN states", n * states.delta_size, states.delta);
  book(plan, "convolution windows", n * states.window_size, states.window);
  book(plan, "gates of the last round", n * states.gates_size, states.gates);
}

void CardModel::book_buffers(ArenaPlan& plan, const CardUpload& upload) {
  const RankDims& dims = model.weights.dims;
  const int64_t hidden = model.config.hidden_size;
  const int64_t heads = int64_t{dims.n_heads} * model.config.head_dim;
  const int64_t kv_width = int64_t{dims.n_kv_heads} * model.config.head_dim;
  const int64_t channels = dims.gdn.conv_channels();
  const int64_t v_width = dims.gdn.v_width();
  const int64_t inter = dims.intermediate_size;
  narrow_stride = (int64_t{dims.gdn.n_v_heads} + 7) / 8 * 8;  // rows start at multiples of 16 bytes
  const int64_t narrow = std::max(kv_width, narrow_stride);
  const int64_t n = limits.n_columns;
  const int64_t before = plan.total_bytes();
  book(plan, "residual stream", n * hidden, buffers.hidden);
  book(plan, "normed rows", n * hidden, buffers.normed);
  book(plan, "first partial sums", n * hidden, buffers.partials[0]);
  book(plan, "second partial sums", n * hidden, buffers.partials[1]);
  const int64_t n_mtp = model.weights.mtp != nullptr ? n : 0;
  book(plan, "MTP hidden rows", n_mtp * hidden, buffers.mtp_hidden);
  book(plan, "MTP inputs", n_mtp * 2 * hidden, buffers.mtp_joined);
  book(plan, "MTP residual stream", n_mtp * hidden, buffers.mtp_x);
  book(plan, "first projections", n * std::max({2 * heads, channels, inter}), buffers.wide[0]);
  book(plan, "second projections", n * std::max({heads, v_width, inter}), buffers.wide[1]);
  book(plan, "mixer outputs", n * std::max(heads, v_width), buffers.wide[2]);
  book(plan, "mixed rows", limits.n_gdn_rows * channels, buffers.mixed);
  book(plan, "first narrow projections", n * narrow, buffers.narrow[0]);
  book(plan, "second narrow projections", n * narrow, buffers.narrow[1]);
  book(plan, "decays", limits.n_gdn_rows * dims.gdn.n_v_heads, buffers.log_decay);
  book(plan, "strengths", limits.n_gdn_rows * dims.gdn.n_v_heads, buffers.beta);
  book(plan, "rotation angles", n * model.config.rotary_dim, buffers.angles);
  // Columns start at multiples of 16 bytes.
  logits_stride = (int64_t{model.config.vocab_size} + 3) / 4 * 4;
  local_logits_stride = (int64_t{dims.vocab_rows} + 3) / 4 * 4;
  book(plan, "logits", limits.n_decode * logits_stride, buffers.logits);
  book(plan, "logits of this rank",
       transport == nullptr ? 0 : limits.n_decode * local_logits_stride, buffers.local_logits);
  book(plan, "prepared activations", upload.prepared_bytes(n), buffers.prepared[0]);
  book(plan, "prepared activations of second halves", upload.prepared_bytes(n),
       buffers.prepared[1]);
  book(plan, "attention partial sums", decode_attention.partial_bytes, buffers.attention);
  book(plan, "chunked delta rule", delta.workspace_bytes, buffers.delta);
  const int64_t n_inputs = InputSender::most_bytes(limits);
  book(plan, "inputs of a pass", n_inputs, buffers.inputs[0]);
  book(plan, "inputs of last columns", n_inputs, buffers.inputs[1]);
  book(plan, "page tables", limits.n_slots * limits.n_pages, buffers.page_tables);
  n_workspace_bytes = plan.total_bytes() - before;
}

int64_t CardModel::kv_layer_bytes() const {
  return kv_bytes(model.kv.shape()) / model.kv.shape().n_layers;
}

KvView CardModel::kv_layer(int layer, int slot) const {
  const KvCacheShape& shape = model.kv.shape();
  return {shape.type, shape.n_kv_heads, shape.head_dim, kv_ + layer * kv_layer_bytes(),
          buffers.page_tables + slot * limits.n_pages};
}

}  // namespace lockstep
