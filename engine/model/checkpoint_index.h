// model.safetensors.index.json: which file of a checkpoint holds which tensor. It is believed only
// where the files agree with it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
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
  // where the index says, and as many bytes as it says.
  void check(const std::vector<std::unique_ptr<SafetensorsFile>>& files) const;

 private:
  struct Entry {
    std::string name;  // as the index spells it
    std::string file;
  };

  void check_listed(const std::vector<std::unique_ptr<SafetensorsFile>>& files) const;
  void check_total_size(const std::vector<std::unique_ptr<SafetensorsFile>>& files) const;

  std::string label_;
  std::map<std::string, Entry> entries_;  // by canonical name
  std::optional<double> total_size_;      // some exporters write it with a decimal point
};

}  // namespace lockstep
