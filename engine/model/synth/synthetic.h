// Checkpoints made of numbers that depend on (seed, tensor name, position) alone: any rank can make
// any part of any tensor by itself, in any order, without a file. Philox in counter mode; block b
// of a tensor's random bytes is philox({b, digest64(name)}, seed).
//
// Weights have the scale of trained ones: matrices keep the size of what they transform, those that
// write to the residual stream are smaller by 1 / sqrt(2 * layers), so that activations stay finite
// at any depth.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/model/checkpoint.h"
#include "engine/model/config.h"
#include "engine/model/convert/convert.h"

namespace lockstep {

// "synth:GEOMETRY[:FORMAT[:SEED]]"; FORMAT is a target of convert_targets(), nvfp4-fp8 by default.
struct SyntheticSpec {
  std::string geometry;
  std::string format = "nvfp4-fp8";
  uint64_t seed = 0;
};

bool is_synthetic_spec(const std::string& model);
SyntheticSpec parse_synthetic_spec(const std::string& model);

struct SyntheticModel {
  ModelConfig config;
  std::string config_json;  // with the format's quantization_config
  std::shared_ptr<const Checkpoint> checkpoint;
  std::string
      digest;  // of geometry, format and seed: what identifies the weights without making them
};

// Throws Error for an unknown format, a bad geometry, or a format that its sizes do not suit.
SyntheticModel make_synthetic_model(const SyntheticSpec& spec);

// A rank's part of it, made without the rest.
std::unique_ptr<Checkpoint> synthetic_rank_part(const SyntheticModel& model, int n_ranks, int rank);

}  // namespace lockstep
