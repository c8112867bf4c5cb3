#include "engine/model/shard_set.h"

#include <algorithm>
#include <cstring>

#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/progress.h"
#include "engine/model/checkpoint_digest.h"
#include "engine/model/checkpoint_writer.h"
#include "engine/model/companion_files.h"
#include "engine/model/shard_spans.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Number of ranks that the files of `dir` are shards for.
int count_ranks(const fs::path& dir) {
  constexpr int kMaxRanks = 64;
  if (!fs::is_directory(dir)) fail("{}: is not a folder with shard files", dir.string());
  for (int n_ranks = 1; n_ranks <= kMaxRanks; ++n_ranks) {
    for (int rank = 0; rank < n_ranks; ++rank) {
      if (fs::exists(dir / shard_file_name(rank, n_ranks))) return n_ranks;
    }
  }
  fail("{}: holds no shard-R-of-N.safetensors: run 'lockstep weights shard'", dir.string());
}

const TensorInfo& local_tensor(const Checkpoint& shard, const ShardRow& row, int rank) {
  const TensorInfo* local = shard.find(row.name);
  if (local == nullptr) fail("{}: tensor {} is missing", shard.label(), row.name);
  if (local->dtype != row.source->dtype || local->shape != row.local_shape(rank)) {
    fail("{}: tensor {} is {} {}, the plan gives this rank {} {}", shard.label(), row.name,
         dtype_name(local->dtype), local->shape_text(), dtype_name(row.source->dtype),
         TensorInfo{"", local->dtype, row.local_shape(rank), {}}.shape_text());
  }
  return *local;
}

// Compares piece by piece; a generated source has no bytes to point at.
void compare_block(const Checkpoint& source, const ShardRow& row, int rank, int64_t offset,
                   std::span<const std::byte> local, std::vector<std::byte>& piece) {
  constexpr size_t kPieceBytes = size_t{4} << 20;
  for (size_t done = 0; done < local.size(); done += kPieceBytes) {
    const auto part = local.subspan(done, std::min(kPieceBytes, local.size() - done));
    const int64_t at = offset + static_cast<int64_t>(done);
    piece.resize(part.size());
    source.read(*row.source, at, piece);
    const auto different = std::mismatch(part.begin(), part.end(), piece.begin());
    if (different.first == part.end()) continue;
    fail("tensor {}: byte {} of the source is not what rank {} holds", row.name,
         at + (different.first - part.begin()), rank);
  }
}

void verify_row(const Checkpoint& source, const ShardSet& shards, const ShardRow& row,
                VerifyReport& report, std::vector<std::byte>& piece) {
  for (int rank = 0; rank < shards.n_ranks(); ++rank) {
    std::span<const std::byte> local = local_tensor(shards.shard(rank), row, rank).bytes;
    report.n_bytes += static_cast<int64_t>(local.size());
    report.n_blocks +=
        row.axis < 0 ? 1 : static_cast<int64_t>(row.ranges[static_cast<size_t>(rank)].size());
    for_each_span(row, rank, 0, row.local_bytes(rank), [&](int64_t offset, int64_t n_bytes) {
      compare_block(source, row, rank, offset, local.first(static_cast<size_t>(n_bytes)), piece);
      local = local.subspan(static_cast<size_t>(n_bytes));
    });
    shards.shard(rank).release(*shards.shard(rank).find(row.name));
  }
  source.release(*row.source);
  ++report.n_tensors;
}

// The joined checkpoint's index: a rank's tensors with the cut dimension at its full size. What the
// whole sizes are follows from the plan of each name, which needs the config alone.
std::vector<TensorInfo> joined_index(const ModelConfig& config, const ShardSet& shards) {
  std::vector<TensorInfo> index;
  const Checkpoint& first = shards.shard(0);
  for (const TensorInfo& local : first.files()[0]->tensors()) {
    const PartCut cut = stored_part_cut(config, first, local.name, shards.n_ranks());
    TensorInfo whole = local;
    whole.bytes = {};
    if (cut.axis >= 0) whole.shape[static_cast<size_t>(cut.axis)] *= shards.n_ranks();
    index.push_back(std::move(whole));
  }
  return index;
}

}  // namespace

ShardSet::ShardSet(const fs::path& dir) {
  const int n_ranks = count_ranks(dir);
  for (int rank = 0; rank < n_ranks; ++rank) {
    shards_.push_back(open_shard(dir, rank, n_ranks));
    const ShardIdentity& mine = shards_.back()->identity();
    if (mine.source_digest != identity().source_digest) {
      fail("{}: its source has digest {}, that of rank 0 {}: shards of different checkpoints",
           shards_.back()->checkpoint().label(), mine.source_digest, identity().source_digest);
    }
  }
}

const Checkpoint& ShardSet::shard(int rank) const {
  return shards_[static_cast<size_t>(rank)]->checkpoint();
}

VerifyReport verify_shards(const ModelConfig& config, const Checkpoint& source,
                           const ShardSet& shards) {
  const ShardPlan plan = make_shard_plan(config, source, shards.n_ranks());
  for (int rank = 0; rank < shards.n_ranks(); ++rank) {
    for (const auto& [name, tensor] : shards.shard(rank).tensors()) {
      if (source.find(name) == nullptr) {
        fail("{}: tensor {} is not in {}", shards.shard(rank).label(), name, source.label());
      }
    }
  }
  VerifyReport report;
  std::map<std::string, std::string> digests;
  std::vector<std::byte> piece;
  Progress progress("verifying", static_cast<uint64_t>(source.n_bytes()), "B");
  for (const ShardRow& row : plan) {
    digests[row.name] = tensor_digest(source, *row.source);
    verify_row(source, shards, row, report, piece);
    progress.advance(static_cast<uint64_t>(row.source->n_bytes()));
  }
  if (combined_digest(source, digests) != shards.identity().source_digest) {
    fail("{}: the shards record another source digest ({})", source.label(),
         shards.identity().source_digest);
  }
  return report;
}

JoinReport join_shards(const fs::path& shards_dir, const fs::path& out) {
  const ModelConfig config = load_model_config(shards_dir);
  const ShardSet shards(shards_dir);
  // The whole checkpoint as an index; its bytes come from the ranks.
  const std::vector<TensorInfo> index = joined_index(config, shards);
  const Checkpoint whole(out.string(), index, nullptr);
  std::map<std::string, ShardRow> rows;
  for (ShardRow& row : make_shard_plan(config, whole, shards.n_ranks())) rows[row.name] = row;
  CheckpointWriter writer(out, index);
  JoinReport report;
  std::map<std::string, std::string> digests;
  Progress progress("joining", static_cast<uint64_t>(whole.n_bytes()), "B");
  for (size_t i = 0; i < index.size(); ++i) {
    const ShardRow& row = rows.at(index[i].name);
    std::vector<std::byte> bytes(static_cast<size_t>(index[i].n_bytes()));
    for (int rank = 0; rank < shards.n_ranks(); ++rank) {
      const TensorInfo& local = local_tensor(shards.shard(rank), row, rank);
      scatter_local(row, rank, local.bytes, bytes);
      shards.shard(rank).release(local);
    }
    digests[row.name] = digest128_hex(bytes);
    writer.append(row.name, bytes);
    report.n_bytes += index[i].n_bytes();
    progress.advance(bytes.size());
  }
  report.n_tensors = static_cast<int64_t>(index.size());
  report.digest = combined_digest(whole, digests);
  if (report.digest != shards.identity().source_digest) {
    fail("{}: the joined tensors have digest {}, their source had {}", shards_dir.string(),
         report.digest, shards.identity().source_digest);
  }
  writer.finish();
  write_companion_files(read_companion_files(shards_dir), out);
  return report;
}

}  // namespace lockstep
