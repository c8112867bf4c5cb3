#include "engine/rank/state_taps.h"

#include <algorithm>

#include "engine/model/shard_plan.h"

namespace lockstep {
namespace {

void record_gdn(const Model& model, const Slot& slot, const std::string& prefix,
                const GdnState& state) {
  const RankDims& dims = model.weights.dims;
  if (slot.taps->wants(prefix + ".gdn_state")) {
    const int64_t first = int64_t{dims.rank} * dims.gdn.n_v_heads;
    slot.taps->put_sharded(
        prefix + ".gdn_state", {dims.gdn.n_v_heads, dims.gdn.k_head_dim, dims.gdn.v_head_dim},
        state.state, model.config.gdn.n_v_heads, {{first, first + dims.gdn.n_v_heads}});
  }
  if (slot.taps->wants(prefix + ".conv_state")) {
    const LogicalSplit split = logical_split(
        model.config, "model.language_model.layers.0.linear_attn.conv1d", dims.n_ranks);
    slot.taps->put_sharded(prefix + ".conv_state", {dims.gdn.conv_channels(), kConvWidth - 1},
                           state.conv, model.config.gdn.conv_channels(),
                           split.ranges[static_cast<size_t>(dims.rank)]);
  }
}

void record_kv(const Model& model, Backend& backend, const Slot& slot, const std::string& prefix,
               int kv_layer) {
  const RankDims& dims = model.weights.dims;
  const int64_t end = slot.sequence.n_positions;
  const int64_t n = std::min(slot.taps->last(), end);
  const int64_t first_head = int64_t{dims.rank} * dims.n_kv_heads;
  for (const bool value : {false, true}) {
    const std::string name = prefix + (value ? ".v" : ".k");
    if (!slot.taps->wants(name)) continue;
    slot.taps->put_sharded(name, {dims.n_kv_heads, n, model.config.head_dim},
                           backend.kv_rows(kv_layer, slot.sequence, value, end - n, n),
                           model.config.n_kv_heads, {{first_head, first_head + dims.n_kv_heads}});
  }
}

}  // namespace

void record_states(const Model& model, Backend& backend, const Slot& slot) {
  if (slot.taps == nullptr || !slot.taps->wants_states()) return;
  const std::vector<GdnState> states = backend.states(slot.sequence);
  size_t gdn_layer = 0;
  int kv_layer = 0;
  for (size_t layer = 0; layer < model.config.layers.size(); ++layer) {
    const std::string prefix = "state/layers." + std::to_string(layer);
    if (model.config.layers[layer] == LayerKind::gated_delta_net) {
      record_gdn(model, slot, prefix, states[gdn_layer++]);
    } else {
      record_kv(model, backend, slot, prefix, kv_layer++);
    }
  }
  if (model.weights.mtp != nullptr) record_kv(model, backend, slot, "state/mtp", kv_layer);
}

}  // namespace lockstep
