#include "engine/model/shard_spans.h"

#include <cstring>

#include "engine/base/error.h"

namespace lockstep {

void read_local(const Checkpoint& source, const ShardRow& row, int rank, int64_t local_begin,
                std::span<std::byte> out) {
  const auto n_out = static_cast<int64_t>(out.size());
  LOCKSTEP_CHECK(local_begin >= 0 && local_begin + n_out <= row.local_bytes(rank));
  for_each_span(row, rank, local_begin, local_begin + n_out, [&](int64_t offset, int64_t n_bytes) {
    source.read(*row.source, offset, out.first(static_cast<size_t>(n_bytes)));
    out = out.subspan(static_cast<size_t>(n_bytes));
  });
}

void scatter_local(const ShardRow& row, int rank, std::span<const std::byte> local,
                   std::span<std::byte> whole) {
  LOCKSTEP_CHECK(static_cast<int64_t>(local.size()) == row.local_bytes(rank));
  LOCKSTEP_CHECK(static_cast<int64_t>(whole.size()) == row.source->n_bytes());
  for_each_span(row, rank, 0, row.local_bytes(rank), [&](int64_t offset, int64_t n_bytes) {
    std::memcpy(whole.data() + offset, local.data(), static_cast<size_t>(n_bytes));
    local = local.subspan(static_cast<size_t>(n_bytes));
  });
}

}  // namespace lockstep
