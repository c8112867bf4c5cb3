#include "engine/model/slow_formats.h"

#include <filesystem>
#include <fstream>

namespace lockstep {

const std::vector<SlowFormat>& slow_formats() {
  // One request on two V100, same kernels, other file of the same model: 41.9 and 71.1 tokens/s.
  static const std::vector<SlowFormat> table = {
      {"V100", "int4",
       "group-wise int4 decodes slowly there: the same model as nvfp4 gave 1.7 times the tokens/s"},
  };
  return table;
}

std::vector<std::string> installed_cards() {
  namespace fs = std::filesystem;
  std::vector<std::string> cards;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    std::ifstream file(entry.path() / "information");
    std::string line;
    while (std::getline(file, line)) {
      const std::string key = "Model:";
      if (line.rfind(key, 0) != 0) continue;
      const size_t begin = line.find_first_not_of(" \t", key.size());
      if (begin != std::string::npos) cards.push_back(line.substr(begin));
    }
  }
  return cards;
}

}  // namespace lockstep
