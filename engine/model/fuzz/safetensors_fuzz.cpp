// Any bytes as a checkpoint file: the container, the shard plan, and every weight format's checks.
// What is accepted must be readable to its last byte.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "engine/base/error.h"
#include "engine/model/checkpoint.h"
#include "engine/model/shard_plan.h"
#include "engine/model/weight_formats.h"

namespace lockstep {
namespace {

void read_to_the_end(const Checkpoint& checkpoint, const std::string& base) {
  const StoredMatrix stored = checkpoint.matrix(base);
  std::vector<float> row(static_cast<size_t>(stored.view.n_cols));
  decode_row(stored.view, 0, row.data());
  decode_row(stored.view, stored.view.n_rows - 1, row.data());
}

void cut_in_two(const Checkpoint& checkpoint, const std::string& base) {
  for (const std::string& suffix : matrix_suffixes()) {
    const TensorInfo* part = checkpoint.find(base + "." + suffix);
    if (part == nullptr) continue;
    MatrixParts parts;
    for (const std::string& other : matrix_suffixes()) {
      if (const TensorInfo* found = checkpoint.find(base + "." + other)) parts[other] = found;
    }
    for (const MatrixAxis axis : {MatrixAxis::rows, MatrixAxis::columns}) {
      const PartCut cut = find_weight_format(base, parts).cut(parts, suffix, axis);
      LOCKSTEP_CHECK(cut.granule > 0);
    }
  }
}

void use(std::span<const std::byte> bytes) {
  const Checkpoint checkpoint(std::make_unique<SafetensorsFile>(bytes, "input"));
  std::set<std::string> bases;
  for (const auto& [name, tensor] : checkpoint.tensors())
    bases.insert(split_tensor_name(name).base);
  for (const std::string& base : bases) {
    try {
      cut_in_two(checkpoint, base);
      read_to_the_end(checkpoint, base);
    } catch (const Error&) {
      // Refused with a message: what it is for.
    }
  }
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes) {
  try {
    lockstep::use(std::as_bytes(std::span(data, n_bytes)));
  } catch (const lockstep::Error&) {
    return 0;
  }
  return 0;
}
