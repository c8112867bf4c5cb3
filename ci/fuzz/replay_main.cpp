// Feeds every file of a corpus to a fuzz target, without libFuzzer: the crashes that were found
// once stay found in every build.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "engine/base/cli.h"
#include "engine/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes);

namespace lockstep {
namespace {

std::vector<std::filesystem::path> corpus_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  if (paths.empty()) fail("{}: an empty corpus proves nothing", folder.string());
  return paths;
}

int replay(const std::filesystem::path& folder) {
  const auto paths = corpus_files(folder);
  for (const auto& path : paths) {
    fmt::print("{}\n", path.string());
    std::fflush(stdout);  // the last line names the input of a crash
    std::ifstream stream(path, std::ios::binary);
    if (!stream) fail("{}: cannot be read", path.string());
    const std::vector<char> bytes(std::istreambuf_iterator<char>(stream), {});
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }
  fmt::print("{} inputs\n", paths.size());
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("replay", [&] {
    if (argc != 2) lockstep::fail_with(lockstep::ExitCode::usage, "usage: NAME_fuzz_replay FOLDER");
    return lockstep::replay(argv[1]);
  });
}
