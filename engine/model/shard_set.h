// All shards of a checkpoint together: the proof that they are the source, and the way back.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/checkpoint.h"
#include "engine/model/config.h"
#include "engine/model/shard_file.h"
#include "engine/model/shard_plan.h"

namespace lockstep {

class ShardSet {
 public:
  // Opens and verifies every shard in `dir`. Throws Error when one is missing or damaged, or when
  // they are not of one source.
  explicit ShardSet(const std::filesystem::path& dir);

  int n_ranks() const { return static_cast<int>(shards_.size()); }
  const ShardIdentity& identity() const { return shards_[0]->identity(); }
  const Checkpoint& shard(int rank) const;

 private:
  std::vector<std::unique_ptr<ShardFile>> shards_;
};

struct VerifyReport {
  int64_t n_tensors = 0;
  int64_t n_blocks =
      0;  // contiguous parts of tensors on ranks; replicated tensors count once a rank
  int64_t n_bytes = 0;  // compared, all ranks together
};

// Puts every tensor together again from the shards and compares it bit for bit with the source,
// block by block. Throws Error that names the first tensor, rank and byte that differs.
VerifyReport verify_shards(const ModelConfig& config, const Checkpoint& source,
                           const ShardSet& shards);

struct JoinReport {
  int64_t n_tensors = 0;
  int64_t n_bytes = 0;
  std::string digest;
};

// Writes the joined checkpoint to `out`. Throws Error when its digest is not the recorded one of
// the source: nothing is then left under a final name.
JoinReport join_shards(const std::filesystem::path& shards_dir, const std::filesystem::path& out);

}  // namespace lockstep
