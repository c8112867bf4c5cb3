// Runs a fuzz target over the files of its corpus, without a fuzzer: replay FOLDER.
#include <cstdint>
#include <filesystem>
#include <iostream>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  return lockstep::run_main("replay", [&] {
    if (argc != 2) lockstep::fail_with(lockstep::ExitCode::usage, "usage: replay FOLDER");
    int n = 0;
    for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
      const std::string input = lockstep::read_text_file(entry.path());
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
      ++n;
    }
    // An empty corpus would pass without testing anything.
    if (n == 0) lockstep::fail("{}: no files", argv[1]);
    std::cout << n << " files replayed\n";
    return 0;
  });
}
