// Digests of a checkpoint's tensors. The digest of a checkpoint is the XXH3-128 digest of the lines
// "NAME DTYPE SHAPE TENSOR_DIGEST\n" of its tensors, sorted by canonical name, so that it does not
// depend on how tensors are spread over files.
#pragma once

#include <map>
#include <string>

#include "engine/model/checkpoint.h"

namespace lockstep {

// XXH3-128 of the tensor's bytes, 32 hex digits. Reads in pieces and releases what it has read.
std::string tensor_digest(const Checkpoint& checkpoint, const TensorInfo& tensor);

// From the digest of every tensor, by canonical name.
std::string combined_digest(const Checkpoint& checkpoint,
                            const std::map<std::string, std::string>& digests);

// Cheap identity: like digest(), but each tensor counts only with up to three windows of 4 KiB
// (start, middle, end). It tells other weights of the same shapes apart (a fine-tune changes every
// large tensor nearly everywhere) without reading the checkpoint; it does not find a flipped bit.
std::string checkpoint_fingerprint(const Checkpoint& checkpoint);

}  // namespace lockstep
