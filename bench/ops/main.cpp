// lockstep-bench-ops: op benchmarks for kernel developers, one thread. `[linear]`, `[rows]` and
// the like choose; `-l` lists them.
#define CATCH_CONFIG_RUNNER
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <string_view>

#include "engine/base/cli.h"

namespace {

bool asks_for_help(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc, [](std::string_view word) {
    return word == "--help" || word == "-h" || word == "-?";
  });
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-bench-ops", [&] {
    if (asks_for_help(argc, argv)) {
      std::puts(
          "Times single CPU ops on one thread, for who changes one. -l lists the cases, '[linear]' "
          "and other tags choose among them, --benchmark-samples 20 is quicker.\n"
          "docs/benchmarks.md says how to read it. The rest are options of Catch2:");
      std::fflush(stdout);
    }
    return Catch::Session().run(argc, argv);
  });
}
