// The vision tower's weights: whole on every rank, any plain float dtype.
#pragma once

#include <memory>
#include <vector>

#include "engine/model/checkpoint.h"
#include "engine/model/config.h"
#include "engine/model/weight_matrix.h"

namespace lockstep {

struct BiasedMatrix {
  WeightMatrix weight;
  std::vector<float> bias;  // [weight.n_rows]
};

struct LayerNormWeights {
  std::vector<float> weight;
  std::vector<float> bias;
};

struct VisionBlockWeights {
  LayerNormWeights norm1;  // [hidden]
  LayerNormWeights norm2;  // [hidden]
  BiasedMatrix qkv;        // [3 * hidden, hidden], parts q | k | v
  BiasedMatrix proj;       // [hidden, hidden]
  BiasedMatrix fc1;        // [intermediate, hidden]
  BiasedMatrix fc2;        // [hidden, intermediate]
};

// "hidden" is the tower's own width.
struct VisionWeights {
  BiasedMatrix patch_embed;      // [hidden, channels * time * patch * patch]
  std::vector<float> positions;  // [n_position_embeddings, hidden]
  std::vector<VisionBlockWeights> blocks;
  LayerNormWeights merger_norm;  // [hidden]
  BiasedMatrix merger_fc1;       // [merge^2 * hidden, merge^2 * hidden]
  BiasedMatrix merger_fc2;       // [model hidden, merge^2 * hidden]
  std::vector<std::shared_ptr<const void>> keep_alive;
};

// Null when config.json describes no tower or the checkpoint holds none. Throws Error that names a
// missing or misshapen tensor, or a size that the tower cannot have. The checkpoint must outlive
// the weights.
std::unique_ptr<VisionWeights> load_vision_weights(const ModelConfig& config,
                                                   const Checkpoint& checkpoint);

}  // namespace lockstep
