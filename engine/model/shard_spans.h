// Where the bytes of a rank's part of a tensor lie in the source tensor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/model/checkpoint.h"
#include "engine/model/shard_plan.h"

namespace lockstep {

// Calls visit(source_offset, n_bytes) for the pieces of the source tensor that make up bytes
// [local_begin, local_end) of the rank's tensor, in the order in which the rank stores them.
template <typename Visit>
void for_each_span(const ShardRow& row, int rank, int64_t local_begin, int64_t local_end,
                   const Visit& visit) {
  if (row.axis < 0) {
    if (local_begin < local_end) visit(local_begin, local_end - local_begin);
    return;
  }
  int64_t step = dtype_bytes(row.source->dtype);  // bytes of one step along the cut dimension
  const auto axis = static_cast<size_t>(row.axis);
  for (size_t i = axis + 1; i < row.source->shape.size(); ++i) step *= row.source->shape[i];
  const std::vector<IndexRange>& ranges = row.ranges[static_cast<size_t>(rank)];
  int64_t local_line = 0;  // bytes of one index of the dimensions before the cut one
  for (const IndexRange& range : ranges) local_line += range.size() * step;
  const int64_t source_line = row.source->shape[axis] * step;
  while (local_begin < local_end) {
    const int64_t line = local_begin / local_line;
    int64_t within = local_begin % local_line;
    for (const IndexRange& range : ranges) {
      const int64_t length = range.size() * step;
      if (within >= length) {
        within -= length;
        continue;
      }
      const int64_t n = std::min(length - within, local_end - local_begin);
      visit(line * source_line + range.begin * step + within, n);
      local_begin += n;
      within = 0;
      if (local_begin == local_end) return;
    }
  }
}

// Copies bytes [local_begin, local_begin + out.size()) of the rank's part of a tensor of `source`.
void read_local(const Checkpoint& source, const ShardRow& row, int rank, int64_t local_begin,
                std::span<std::byte> out);

// The inverse: puts a rank's local bytes, whole, where they belong in the source tensor.
void scatter_local(const ShardRow& row, int rank, std::span<const std::byte> local,
                   std::span<std::byte> whole);

}  // namespace lockstep
