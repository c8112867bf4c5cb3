#include "engine/rank/sequence.h"

namespace lockstep {

std::vector<GdnState> zero_states(const ModelConfig& config, const RankDims& dims) {
  std::vector<GdnState> states;
  for (const LayerKind kind : config.layers) {
    if (kind != LayerKind::gated_delta_net) continue;
    const auto state_size = static_cast<size_t>(dims.gdn.n_v_heads) *
                            static_cast<size_t>(dims.gdn.k_head_dim * dims.gdn.v_head_dim);
    const auto conv_size = static_cast<size_t>(dims.gdn.conv_channels()) * (kConvWidth - 1);
    states.push_back({std::vector<float>(state_size), std::vector<float>(conv_size)});
  }
  return states;
}

}  // namespace lockstep
