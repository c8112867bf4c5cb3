// model.safetensors.index.json: which file of a checkpoint holds which tensor. It is believed only
// where the files agree with it. Its metadata is not read: what exporters wrote as total_size is
// often wrong, and the files say how large they are.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/model/safetensors.h"

namespace lockstep {

class CheckpointIndex {
 public:
  // Throws Error that names the entry.
  explicit CheckpointIndex(const std::filesystem::path& path);

  // Names of files in the index's folder.
  std::set<std::string> files() const;

  // Throws Error that names the tensor unless these files hold exactly the listed tensors, each
  // where the index says.
  void check(const std::vector<std::unique_ptr<SafetensorsFile>>& files) const;

 private:
  struct Entry {
    std::string name;  // as the index spells it
    std::string file;
  };

  void check_listed(const std::vector<std::unique_ptr<SafetensorsFile>>& files) const;

  std::string label_;
  std::map<std::string, Entry> entries_;  // by canonical name
};

}  // namespace lockstep
