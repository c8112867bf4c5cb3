#include "engine/model/digest_file.h"

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/progress.h"
#include "engine/model/checkpoint_digest.h"

namespace lockstep {
namespace {

constexpr int kDigestFileVersion = 1;

}  // namespace

DigestFile compute_digests(const Checkpoint& checkpoint) {
  DigestFile digests;
  Progress progress("digesting", static_cast<uint64_t>(checkpoint.n_bytes()), "B");
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    digests.tensors[name] = tensor_digest(checkpoint, *tensor);
    progress.advance(static_cast<uint64_t>(tensor->n_bytes()));
  }
  digests.checkpoint = combined_digest(checkpoint, digests.tensors);
  return digests;
}

void write_digest_file(const DigestFile& digests, const std::filesystem::path& path) {
  const nlohmann::ordered_json json = {{"lockstep_digests", kDigestFileVersion},
                                       {"checkpoint", digests.checkpoint},
                                       {"tensors", digests.tensors}};
  write_file_atomically(path, json.dump(1) + "\n");
}

DigestFile read_digest_file(const std::filesystem::path& path) {
  const auto json = nlohmann::json::parse(read_text_file(path), nullptr, false);
  const bool known = json.is_object() && json.contains("lockstep_digests") &&
                     json["lockstep_digests"].is_number_integer();
  if (!known) fail("{}: is not a digest file of 'lockstep weights verify'", path.string());
  if (json["lockstep_digests"] != kDigestFileVersion) {
    fail("{}: digest file version {}, this program reads {}", path.string(),
         json["lockstep_digests"].dump(), kDigestFileVersion);
  }
  const bool complete = json.contains("checkpoint") && json["checkpoint"].is_string() &&
                        json.contains("tensors") && json["tensors"].is_object() &&
                        !json["tensors"].empty();
  if (!complete) fail("{}: needs checkpoint and tensors", path.string());
  DigestFile digests;
  digests.checkpoint = json["checkpoint"].get<std::string>();
  for (const auto& [name, digest] : json["tensors"].items()) {
    if (!digest.is_string()) fail("{}: tensors.{} must be a digest", path.string(), name);
    digests.tensors[name] = digest.get<std::string>();
  }
  return digests;
}

void check_digests(const Checkpoint& checkpoint, const DigestFile& expected) {
  for (const auto& [name, digest] : expected.tensors) {
    if (checkpoint.find(name) == nullptr)
      fail("{}: tensor {} is missing", checkpoint.label(), name);
  }
  const DigestFile found = compute_digests(checkpoint);
  for (const auto& [name, digest] : found.tensors) {
    const auto at = expected.tensors.find(name);
    if (at == expected.tensors.end()) {
      fail("{}: tensor {} is not in the digest file", checkpoint.label(), name);
    }
    if (at->second != digest) {
      fail("{}: tensor {} differs: digest {}, expected {}", checkpoint.label(), name, digest,
           at->second);
    }
  }
  // The bytes agree: only dtypes or shapes can differ now.
  if (found.checkpoint != expected.checkpoint) {
    fail("{}: the bytes agree, dtypes or shapes do not (digest {}, expected {})",
         checkpoint.label(), found.checkpoint, expected.checkpoint);
  }
}

}  // namespace lockstep
