#include "engine/base/ungated_ops.h"

#include <sstream>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"

namespace lockstep {

std::filesystem::path share_folder() {
  return sibling_program("").parent_path().parent_path() / "share" / "lockstep";
}

std::vector<std::string> ungated_ops() {
  const std::filesystem::path path = share_folder() / "ungated-ops.txt";
  if (!std::filesystem::is_regular_file(path)) {
    return {fmt::format("{} is missing: no CUDA op is known to be gated", path.string())};
  }
  std::vector<std::string> lines;
  std::istringstream text(read_text_file(path));
  for (std::string line; std::getline(text, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    lines.push_back(
        fmt::format("op {} is not gated: {}", line.substr(0, colon), line.substr(colon + 2)));
  }
  return lines;
}

}  // namespace lockstep
