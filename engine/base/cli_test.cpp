#include "engine/base/cli.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "engine/base/error.h"

namespace lockstep {
namespace {

// A program that prints into a full disk, with or without a buffer, and says that all went well.
[[noreturn]] void print_into_full_disk(int buffering) {
  if (std::freopen("/dev/full", "w", stdout) == nullptr) std::exit(99);
  std::setvbuf(stdout, nullptr, buffering, BUFSIZ);
  std::exit(run_main("prog", [] {
    std::fputs("words\n", stdout);
    return 0;
  }));
}

TEST(RunMainDeathTest, WhatWasNotWrittenIsAnError) {
  EXPECT_EXIT(print_into_full_disk(_IOFBF), ::testing::ExitedWithCode(1),
              "^prog: standard output: No space left on device\n$");
  // Here the flush at the end has nothing left to do.
  EXPECT_EXIT(print_into_full_disk(_IONBF), ::testing::ExitedWithCode(1),
              "^prog: standard output: could not be written\n$");
}

TEST(RunMainDeathTest, AnErrorKeepsItsOwnCodeAndWords) {
  EXPECT_EXIT(std::exit(run_main("prog", []() -> int { fail_with(ExitCode::usage, "--x: bad"); })),
              ::testing::ExitedWithCode(2), "^prog: --x: bad\n$");
}

}  // namespace
}  // namespace lockstep
