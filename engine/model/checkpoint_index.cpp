#include "engine/model/checkpoint_index.h"

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/model/checkpoint.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Files = std::vector<std::unique_ptr<SafetensorsFile>>;

std::string name_of(const SafetensorsFile& file) {
  return fs::path(file.label()).filename();
}

// The file that holds each tensor, by canonical name.
std::map<std::string, std::string> places_in(const Files& files) {
  std::map<std::string, std::string> places;
  for (const auto& file : files) {
    for (const TensorInfo& tensor : file->tensors()) {
      places[canonical_tensor_name(tensor.name)] = name_of(*file);
    }
  }
  return places;
}

}  // namespace

CheckpointIndex::CheckpointIndex(const fs::path& path) : label_(path.string()) {
  const auto json = nlohmann::json::parse(read_text_file(path), nullptr, false);
  if (json.is_discarded() || !json.is_object() || !json.contains("weight_map") ||
      !json["weight_map"].is_object() || json["weight_map"].empty()) {
    fail("{}: needs an object weight_map", label_);
  }
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (!file.is_string()) fail("{}: weight_map.{} must be a file name", label_, name);
    const std::string text = file.get<std::string>();
    if (text.empty() || text.find('/') != std::string::npos || text == "..") {
      fail("{}: weight_map.{} leaves the folder: {}", label_, name, text);
    }
    if (!entries_.emplace(canonical_tensor_name(name), Entry{name, text}).second) {
      fail("{}: lists tensor {} twice, under two prefixes: fetch the checkpoint again", label_,
           name);
    }
  }
}

std::set<std::string> CheckpointIndex::files() const {
  std::set<std::string> files;
  for (const auto& [name, entry] : entries_) files.insert(entry.file);
  return files;
}

void CheckpointIndex::check(const Files& files) const {
  check_listed(files);
  for (const auto& file : files) {
    for (const TensorInfo& tensor : file->tensors()) {
      if (entries_.contains(canonical_tensor_name(tensor.name))) continue;
      fail("{}: does not list tensor {}, which {} holds: fetch the checkpoint again", label_,
           tensor.name, name_of(*file));
    }
  }
}

void CheckpointIndex::check_listed(const Files& files) const {
  const std::map<std::string, std::string> places = places_in(files);
  for (const auto& [name, entry] : entries_) {
    const auto place = places.find(name);
    if (place == places.end()) {
      fail("{}: lists tensor {}, which {} does not hold: fetch the checkpoint again", label_,
           entry.name, entry.file);
    }
    if (place->second == entry.file) continue;
    fail("{}: lists tensor {} in {}, but {} holds it: fetch the checkpoint again", label_,
         entry.name, entry.file, place->second);
  }
}

}  // namespace lockstep
