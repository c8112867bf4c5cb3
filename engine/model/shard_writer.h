// Writes the shard files of a checkpoint: one pass over the source, tensor by tensor, in pieces of
// a few MiB, so that memory stays far below a shard. An interrupted run is taken up where it
// stopped.
#pragma once

#include <filesystem>

#include "engine/model/checkpoint.h"
#include "engine/model/companion_files.h"
#include "engine/model/config.h"

namespace lockstep {

struct ShardReport {
  int64_t n_tensors = 0;
  int64_t n_resumed = 0;  // tensors that an earlier, interrupted run had written
  int64_t n_bytes = 0;    // of all shard files
  std::string source_digest;
};

// Writes DIR/shard-R-of-N.safetensors for every rank, and the companion files. Shards of the same
// source that are complete already are verified and kept. Throws Error when the disk is too small.
ShardReport write_shards(const ModelConfig& config, const Checkpoint& source,
                         const CompanionFiles& companions, int n_ranks,
                         const std::filesystem::path& dir);

}  // namespace lockstep
