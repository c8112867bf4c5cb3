// Layers that a checkpoint holds and its config does not use: what they would have changed in the
// text nobody would see. MTP layers and a vision tower that the config does not mention are no such
// case: without them the text is the same.
#pragma once

#include "engine/model/checkpoint.h"
#include "engine/model/config.h"

namespace lockstep {

// Throws Error that names the first unused tensor and what to correct. The checkpoint may be whole
// or a rank's shard.
void refuse_unused_layers(const ModelConfig& config, const Checkpoint& checkpoint);

}  // namespace lockstep
