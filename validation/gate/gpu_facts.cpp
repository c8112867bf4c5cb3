#include "validation/gate/gpu_facts.h"

#include <algorithm>
#include <sstream>

#include "engine/base/mapped_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The value of "Key:   value"; empty when the line has another key.
std::string value_of(const std::string& line, const std::string& key) {
  if (!line.starts_with(key + ":")) return {};
  const size_t begin = line.find_first_not_of(" \t", key.size() + 1);
  return begin == std::string::npos ? std::string() : line.substr(begin);
}

}  // namespace

std::vector<GpuFacts> installed_gpus(const fs::path& proc) {
  std::vector<fs::path> folders;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(proc / "gpus", ignored)) {
    folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  std::vector<GpuFacts> gpus;
  for (const fs::path& folder : folders) {
    GpuFacts gpu;
    std::istringstream lines(read_text_file(folder / "information"));
    for (std::string line; std::getline(lines, line);) {
      if (const std::string model = value_of(line, "Model"); !model.empty()) gpu.model = model;
      if (const std::string uuid = value_of(line, "GPU UUID"); !uuid.empty()) gpu.uuid = uuid;
    }
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

std::string driver_version(const fs::path& proc) {
  if (!fs::exists(proc / "version")) return {};
  const std::string text = read_text_file(proc / "version");
  return text.substr(0, text.find('\n'));
}

}  // namespace lockstep
