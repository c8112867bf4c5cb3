#include "engine/model/shard_journal.h"

#include <sstream>

#include "engine/base/error.h"

namespace lockstep {

namespace fs = std::filesystem;

ShardJournal::ShardJournal(const fs::path& path, const std::string& key, int n_ranks)
    : path_(path) {
  std::ifstream in(path);
  std::string line;
  const bool same = std::getline(in, line) && line == key && !in.eof();
  // A line without its newline was being written when the run stopped.
  while (same && std::getline(in, line) && !in.eof()) {
    std::istringstream words(line);
    std::string name;
    Entry entry;
    entry.rank_digests.resize(static_cast<size_t>(n_ranks));
    words >> name >> entry.source_digest;
    for (std::string& digest : entry.rank_digests) words >> digest;
    if (words) entries_[name] = std::move(entry);
  }
  in.close();
  out_.open(path, std::ios::trunc);
  out_ << key << '\n';
  for (const auto& [name, entry] : entries_) append(name, entry);
  if (!out_) fail("{}: cannot be written", path.string());
}

const ShardJournal::Entry* ShardJournal::find(const std::string& name) const {
  const auto at = entries_.find(name);
  return at == entries_.end() ? nullptr : &at->second;
}

void ShardJournal::append(const std::string& name, const Entry& entry) {
  out_ << name << ' ' << entry.source_digest;
  for (const std::string& digest : entry.rank_digests) out_ << ' ' << digest;
  out_ << std::endl;
  if (!out_) fail("{}: cannot be written", path_.string());
}

void ShardJournal::remove() {
  out_.close();
  fs::remove(path_);
}

}  // namespace lockstep
