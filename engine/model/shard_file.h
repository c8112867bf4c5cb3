// A rank's shard file: a safetensors container with the rank's part of every tensor, its identity
// and digests. Format: docs/formats/shard.md.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/checkpoint.h"
#include "engine/model/device_layout.h"

namespace lockstep {

inline constexpr int kShardVersion = 1;

struct ShardIdentity {
  int rank = 0;
  int n_ranks = 1;
  std::string source_digest;       // Checkpoint::digest of the source
  std::string source_fingerprint;  // checkpoint_fingerprint of the source
  std::string config_digest;       // XXH3-128 of the config.json beside the shard
  std::string layout{kRowMajor};   // of matrices' codes (device_layout.h)
};

std::string shard_file_name(int rank, int n_ranks);  // "shard-0-of-2.safetensors"

// The length prefix and header of a shard file; its size does not depend on the digests' values.
// `digests` holds the digest of every tensor by name.
std::string shard_header(const ShardIdentity& identity, const std::vector<TensorInfo>& tensors,
                         const std::map<std::string, std::string>& digests);

class ShardFile {
 public:
  // Reads and checks the header: version, its own digest, no gap and no byte beyond the last
  // tensor. Throws Error that names the file.
  explicit ShardFile(const std::filesystem::path& path);

  const ShardIdentity& identity() const { return identity_; }
  // Of every tensor, by canonical name.
  const std::map<std::string, std::string>& digests() const { return digests_; }
  const Checkpoint& checkpoint() const { return *checkpoint_; }

  // Reads every tensor and compares its digest. Throws Error that names the first damaged tensor.
  void verify_tensors() const;

  // Gives the tensors away; the shard is empty afterwards.
  std::unique_ptr<Checkpoint> take_checkpoint() { return std::move(checkpoint_); }

 private:
  void parse_metadata(const SafetensorsFile& file);

  ShardIdentity identity_;
  std::map<std::string, std::string> digests_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

// The verified shard of one rank in a folder that `weights shard` made. Throws Error when it is of
// another rank or number of ranks, its config.json is not the one it was made with, or its matrices
// have a layout that is not in `layouts`.
std::unique_ptr<ShardFile> open_shard(const std::filesystem::path& dir, int rank, int n_ranks,
                                      const LayoutSet& layouts = LayoutSet());

}  // namespace lockstep
