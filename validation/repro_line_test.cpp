#include "validation/repro_line.h"

#include <gtest/gtest.h>

#include "engine/base/mapped_file.h"
#include "engine/base/temp_dir.h"

namespace lockstep {
namespace {

TEST(ReproLine, BeginsWithThePathOfTheProgram) {
  const TempDir dir;
  const std::string front = (dir.path() / "lockstep").string();
  EXPECT_EQ(pasteable("lockstep gate", front), "lockstep gate") << "there is no such program";
  write_file_atomically(front, std::string("#!/bin/sh\n"));
  EXPECT_EQ(pasteable("lockstep gate --only i1", front), front + " gate --only i1");
  EXPECT_EQ(pasteable("lockstep probe --profile FILE; lockstep gate --machine lockstep x", front),
            front + " probe --profile FILE; " + front + " gate --machine lockstep x");
  EXPECT_EQ(pasteable("lockstep-gate x", front), "lockstep-gate x");
  EXPECT_EQ(pasteable("", front), "");
}

// A shell must read the path as one word.
TEST(ReproLine, QuotesAPathThatAShellWouldSplit) {
  const TempDir dir;
  const std::filesystem::path folder = dir.path() / "it's here";
  std::filesystem::create_directory(folder);
  write_file_atomically(folder / "lockstep", std::string("#!/bin/sh\nexit 7\n"));
  std::filesystem::permissions(folder / "lockstep", std::filesystem::perms::owner_all);
  const std::string line = pasteable("lockstep gate", folder / "lockstep");
  EXPECT_EQ(run_process({"/bin/sh", "-c", line}).exit_code, 7) << line;
}

}  // namespace
}  // namespace lockstep
