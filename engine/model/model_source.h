// What a rank starts from: a checkpoint folder, shard files, or a synthetic model.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "engine/model/checkpoint.h"
#include "engine/model/config.h"

namespace lockstep {

struct ModelSource {
  ModelConfig config;
  std::unique_ptr<Checkpoint> checkpoint;
  bool sharded = false;       // the tensors are this rank's parts already
  std::string source_digest;  // of the whole checkpoint where it is known without reading it all
};

// `model` is a folder or "synth:..." (synth/synthetic.h); `shards` a folder made by 'weights
// shard', or empty. With shards the model's folder needs no tensors; if it has some, they must be
// the shards' source (by fingerprint). Throws Error that names what is wrong.
ModelSource open_model_source(const std::string& model, const std::string& shards, int n_ranks,
                              int rank);

}  // namespace lockstep
