// The vision tower: patches of one picture to rows that stand where the prompt has its image pads.
#pragma once

#include <vector>

#include "engine/media/patches.h"
#include "engine/rank/layers.h"

namespace lockstep {

// [image.n_tokens(), hidden] embeddings, rounded as model.rounding says. model.weights.vision must
// not be null, and the patches must fit its sizes. A picture's rows depend on that picture alone.
std::vector<float> vision_forward(const Model& model, const ImagePatches& image);

}  // namespace lockstep
