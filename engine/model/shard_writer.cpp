#include "engine/model/shard_writer.h"

#include <algorithm>

#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/progress.h"
#include "engine/model/checkpoint_digest.h"
#include "engine/model/output_file.h"
#include "engine/model/shard_file.h"
#include "engine/model/shard_journal.h"
#include "engine/model/shard_spans.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceBytes = int64_t{4} << 20;

// Wide elements first, so that every tensor's data starts at a multiple of its element size.
void sort_for_alignment(ShardPlan& plan) {
  std::stable_sort(plan.begin(), plan.end(), [](const ShardRow& a, const ShardRow& b) {
    return dtype_bytes(a.source->dtype) > dtype_bytes(b.source->dtype);
  });
}

std::string text_digest(const std::string& text) {
  return digest128_hex(std::as_bytes(std::span(text.data(), text.size())));
}

class ShardJob {
 public:
  ShardJob(const ModelConfig& config, const Checkpoint& source, const CompanionFiles& companions,
           int n_ranks, const fs::path& dir)
      : source_(source),
        n_ranks_(n_ranks),
        dir_(dir),
        plan_(make_shard_plan(config, source, n_ranks)) {
    sort_for_alignment(plan_);
    for (int rank = 0; rank < n_ranks; ++rank) {
      ShardIdentity identity;
      identity.rank = rank;
      identity.n_ranks = n_ranks;
      identity.source_digest.assign(32, '0');
      identity.source_fingerprint = checkpoint_fingerprint(source);
      identity.config_digest = text_digest(companions.at("config.json"));
      ranks_.push_back({identity, {}, {}, 0, 0});
    }
    for (const ShardRow& row : plan_) add_row(row);
    for (RankPart& part : ranks_) {
      part.n_header =
          static_cast<int64_t>(shard_header(part.identity, part.tensors, part.digests).size());
    }
  }

  // True when every shard is there, whole, and of this source.
  bool is_done(ShardReport& report) const {
    for (const RankPart& part : ranks_) {
      if (!fs::exists(path_of(part))) return false;
    }
    for (const RankPart& part : ranks_) {
      if (!is_whole(part, report)) return false;
    }
    report.n_resumed = report.n_tensors = static_cast<int64_t>(plan_.size());
    report.n_bytes = total_bytes();
    return true;
  }

  void run(ShardReport& report) {
    take_back_committed_files();
    std::vector<OutputFile> files;
    int64_t present = 0;
    for (const RankPart& part : ranks_) {
      files.emplace_back(path_of(part));
      present += files.back().size();
    }
    check_disk_space(dir_, total_bytes() - present);
    ShardJournal journal(journal_path(), journal_key(), n_ranks_);
    Progress progress("sharding", static_cast<uint64_t>(total_bytes()), "B");
    std::map<std::string, std::string> source_digests;
    for (const ShardRow& row : plan_) {
      ShardJournal::Entry entry;
      const ShardJournal::Entry* known = journal.find(row.name);
      if (known != nullptr && is_written(row, *known, files)) {
        entry = *known;
        ++report.n_resumed;
      } else {
        entry = write_row(row, files);
        journal.append(row.name, entry);
      }
      source_digests[row.name] = entry.source_digest;
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        ranks_[rank].digests[row.name] = entry.rank_digests[rank];
        progress.advance(static_cast<uint64_t>(row.local_bytes(static_cast<int>(rank))));
      }
    }
    report.source_digest = combined_digest(source_, source_digests);
    commit(files, report.source_digest);
    journal.remove();
    report.n_tensors = static_cast<int64_t>(plan_.size());
    report.n_bytes = total_bytes();
  }

 private:
  struct RankPart {
    ShardIdentity identity;
    std::vector<TensorInfo> tensors;  // index of the shard, in the order of its data
    std::map<std::string, std::string> digests;
    int64_t n_header;
    int64_t n_data;
    std::map<std::string, int64_t> offsets = {};  // in the data
  };

  void add_row(const ShardRow& row) {
    for (RankPart& part : ranks_) {
      part.tensors.push_back(
          {row.name, row.source->dtype, row.local_shape(part.identity.rank), {}});
      part.digests[row.name].assign(32, '0');
      part.offsets[row.name] = part.n_data;
      part.n_data += row.local_bytes(part.identity.rank);
    }
  }

  int64_t total_bytes() const {
    int64_t n = 0;
    for (const RankPart& part : ranks_) n += part.n_header + part.n_data;
    return n;
  }

  fs::path path_of(const RankPart& part) const {
    return dir_ / shard_file_name(part.identity.rank, n_ranks_);
  }
  fs::path journal_path() const { return dir_ / fmt::format("shard-of-{}.journal", n_ranks_); }

  // Header sizes are in the key because they place the data.
  std::string journal_key() const {
    std::string key = fmt::format("lockstep-shard-journal {} {} {}", kShardVersion, n_ranks_,
                                  ranks_[0].identity.source_fingerprint);
    for (const RankPart& part : ranks_) key += fmt::format(" {}", part.n_header + part.n_data);
    return key;
  }

  // False for a damaged file too: it is then written again.
  bool is_whole(const RankPart& part, ShardReport& report) const {
    try {
      const ShardFile shard(path_of(part));
      const ShardIdentity& identity = shard.identity();
      if (identity.source_fingerprint != part.identity.source_fingerprint ||
          identity.config_digest != part.identity.config_digest || identity.n_ranks != n_ranks_ ||
          identity.rank != part.identity.rank) {
        return false;
      }
      shard.verify_tensors();
      report.source_digest = identity.source_digest;
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  // A run that stopped between its commits left some files under their final names.
  void take_back_committed_files() const {
    if (!fs::exists(journal_path())) return;
    for (const RankPart& part : ranks_) {
      const fs::path partial = OutputFile::partial_path(path_of(part));
      if (fs::exists(path_of(part)) && !fs::exists(partial)) fs::rename(path_of(part), partial);
    }
  }

  bool is_written(const ShardRow& row, const ShardJournal::Entry& entry,
                  const std::vector<OutputFile>& files) const {
    std::vector<std::byte> piece;
    for (size_t rank = 0; rank < files.size(); ++rank) {
      const RankPart& part = ranks_[rank];
      const int64_t n_bytes = row.local_bytes(part.identity.rank);
      const int64_t start = part.n_header + part.offsets.at(row.name);
      Digest128 digest;
      for (int64_t done = 0; done < n_bytes; done += kPieceBytes) {
        piece.resize(static_cast<size_t>(std::min(kPieceBytes, n_bytes - done)));
        if (!files[rank].read_at(start + done, piece)) return false;
        digest.update(piece);
      }
      if (digest.hex() != entry.rank_digests[rank]) return false;
    }
    return true;
  }

  ShardJournal::Entry write_row(const ShardRow& row, std::vector<OutputFile>& files) const {
    ShardJournal::Entry entry;
    std::vector<std::byte> piece;
    for (size_t rank = 0; rank < files.size(); ++rank) {
      const RankPart& part = ranks_[rank];
      const int64_t n_bytes = row.local_bytes(part.identity.rank);
      const int64_t start = part.n_header + part.offsets.at(row.name);
      Digest128 digest;
      for (int64_t done = 0; done < n_bytes; done += kPieceBytes) {
        piece.resize(static_cast<size_t>(std::min(kPieceBytes, n_bytes - done)));
        read_local(source_, row, part.identity.rank, done, piece);
        digest.update(piece);
        files[rank].write_at(start + done, piece);
      }
      entry.rank_digests.push_back(digest.hex());
    }
    entry.source_digest = tensor_digest(source_, *row.source);
    return entry;
  }

  void commit(std::vector<OutputFile>& files, const std::string& source_digest) {
    for (size_t rank = 0; rank < files.size(); ++rank) {
      RankPart& part = ranks_[rank];
      part.identity.source_digest = source_digest;
      const std::string header = shard_header(part.identity, part.tensors, part.digests);
      LOCKSTEP_CHECK(static_cast<int64_t>(header.size()) == part.n_header);
      files[rank].write_at(0, header);
    }
    for (size_t rank = 0; rank < files.size(); ++rank) {
      files[rank].commit(ranks_[rank].n_header + ranks_[rank].n_data);
    }
  }

  const Checkpoint& source_;
  const int n_ranks_;
  const fs::path dir_;
  ShardPlan plan_;
  std::vector<RankPart> ranks_;
};

}  // namespace

ShardReport write_shards(const ModelConfig& config, const Checkpoint& source,
                         const CompanionFiles& companions, int n_ranks, const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) fail("{}: {}", dir.string(), error.message());
  ShardReport report;
  ShardJob job(config, source, companions, n_ranks, dir);
  write_companion_files(companions, dir);
  if (!job.is_done(report)) job.run(report);
  return report;
}

}  // namespace lockstep
