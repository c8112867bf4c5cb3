// What an interrupted `weights shard` has finished: one line a tensor. Digests are checked against
// the partial files before a line is believed.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

class ShardJournal {
 public:
  struct Entry {
    std::string source_digest;
    std::vector<std::string> rank_digests;
  };

  // `key` names source, plan and format: a journal of another key is discarded.
  ShardJournal(const std::filesystem::path& path, const std::string& key, int n_ranks);

  const Entry* find(const std::string& name) const;
  void append(const std::string& name, const Entry& entry);
  void remove();

 private:
  std::filesystem::path path_;
  std::map<std::string, Entry> entries_;
  std::ofstream out_;
};

}  // namespace lockstep
