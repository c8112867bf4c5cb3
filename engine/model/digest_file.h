// A file with the digest of every tensor of a checkpoint: enough to check a copy elsewhere without
// moving it. JSON: {"lockstep_digests": 1, "checkpoint": DIGEST, "tensors": {NAME: DIGEST}}.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "engine/model/checkpoint.h"

namespace lockstep {

struct DigestFile {
  std::string checkpoint;
  std::map<std::string, std::string> tensors;  // by canonical name
};

// Reads every tensor.
DigestFile compute_digests(const Checkpoint& checkpoint);

void write_digest_file(const DigestFile& digests, const std::filesystem::path& path);

// Throws Error that names the file and what is wrong with it.
DigestFile read_digest_file(const std::filesystem::path& path);

// Throws Error that names the first tensor which differs, is missing or is too much.
void check_digests(const Checkpoint& checkpoint, const DigestFile& expected);

}  // namespace lockstep
