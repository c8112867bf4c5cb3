#include "engine/model/checkpoint_digest.h"

#include <algorithm>
#include <vector>

#include "engine/base/digest.h"
#include "engine/base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr int64_t kWindowBytes = 4096;

void update_with_range(Digest128& digest, const Checkpoint& checkpoint, const TensorInfo& tensor,
                       int64_t begin, int64_t n_bytes) {
  std::vector<std::byte> piece(static_cast<size_t>(n_bytes));
  checkpoint.read(tensor, begin, piece);
  digest.update(piece);
}

std::string window_digest(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  Digest128 digest;
  const int64_t n_bytes = tensor.n_bytes();
  const int64_t window = std::min(n_bytes, kWindowBytes);
  for (const int64_t begin : {int64_t{0}, (n_bytes - window) / 2, n_bytes - window}) {
    update_with_range(digest, checkpoint, tensor, begin, window);
  }
  return digest.hex();
}

}  // namespace

std::string tensor_digest(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  if (!checkpoint.is_generated()) {
    const std::string digest = digest128_hex(tensor.bytes);
    checkpoint.release(tensor);
    return digest;
  }
  Digest128 digest;
  for (int64_t done = 0; done < tensor.n_bytes(); done += kPieceBytes) {
    update_with_range(digest, checkpoint, tensor, done,
                      std::min(kPieceBytes, tensor.n_bytes() - done));
  }
  return digest.hex();
}

std::string combined_digest(const Checkpoint& checkpoint,
                            const std::map<std::string, std::string>& digests) {
  Digest128 combined;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const auto at = digests.find(name);
    LOCKSTEP_CHECK(at != digests.end());
    combined.update(fmt::format("{} {} {} {}\n", name, dtype_name(tensor->dtype),
                                tensor->shape_text(), at->second));
  }
  return combined.hex();
}

std::string checkpoint_fingerprint(const Checkpoint& checkpoint) {
  std::map<std::string, std::string> digests;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    digests[name] = window_digest(checkpoint, *tensor);
  }
  return combined_digest(checkpoint, digests);
}

}  // namespace lockstep
