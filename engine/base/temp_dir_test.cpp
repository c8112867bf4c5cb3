#include "engine/base/temp_dir.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const std::string kLeftBehind = "lockstep-temp-1-aB3xYz";

void make_old(const fs::path& path) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::minutes(2));
}

// As a process that was killed leaves it.
fs::path plant(const fs::path& parent, const std::string& name) {
  const fs::path folder = parent / name;
  fs::create_directory(folder);
  std::ofstream(folder / "jobs.jsonl") << "{}\n";
  fs::permissions(folder, fs::perms::owner_all);
  make_old(folder);
  return folder;
}

TEST(TempDir, GoesWithItsObject) {
  auto folder = std::make_unique<TempDir>();
  const fs::path path = folder->path();
  std::ofstream(path / "file") << "x";
  EXPECT_TRUE(fs::exists(path / "file"));
  folder.reset();
  EXPECT_FALSE(fs::exists(path));
}

TEST(TempDir, SweepsWhatAnEndedProcessLeft) {
  const TempDir parent;
  const fs::path stale = plant(parent.path(), kLeftBehind);
  remove_stale_temp_dirs(parent.path());
  EXPECT_FALSE(fs::exists(stale));
}

TEST(TempDir, SweepsNothingYoungOrShared) {
  const TempDir parent;
  const fs::path young = plant(parent.path(), kLeftBehind);
  fs::last_write_time(young, fs::file_time_type::clock::now());
  const fs::path shared = plant(parent.path(), "lockstep-temp-2-aB3xYz");
  fs::permissions(shared, fs::perms::owner_all | fs::perms::group_read);
  remove_stale_temp_dirs(parent.path());
  EXPECT_TRUE(fs::exists(young / "jobs.jsonl"));
  EXPECT_TRUE(fs::exists(shared / "jobs.jsonl"));
}

TEST(TempDir, SweepsNoFolderOfAnotherName) {
  const TempDir parent;
  const char* const names[] = {"lockstep-shards",         "lockstep-temp-shards",
                               "lockstep-temp--aB3xYz",   "lockstep-temp-1x-aB3xYz",
                               "lockstep-temp-1-aB3xY",   "lockstep-temp-1-aB3xYzz",
                               "lockstep-temp-1-aB3_Yz",  "my-lockstep-temp-1-aB3xYz",
                               "lockstep-temp-1-aB3xYz~", "lockstep-temp-1-2-aB3xYz"};
  for (const char* name : names) plant(parent.path(), name);
  remove_stale_temp_dirs(parent.path());
  for (const char* name : names) EXPECT_TRUE(fs::exists(parent.path() / name)) << name;
}

TEST(TempDir, SweepsNoLinkNorWhatItPointsTo) {
  const TempDir parent;
  const fs::path target = plant(parent.path(), "kept");
  const fs::path link = parent.path() / kLeftBehind;
  fs::create_directory_symlink(target, link);
  const fs::path stale = plant(parent.path(), "lockstep-temp-2-aB3xYz");
  fs::create_directory_symlink(target, stale / "link");
  make_old(stale);
  remove_stale_temp_dirs(parent.path());
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_FALSE(fs::exists(stale));
  EXPECT_TRUE(fs::exists(target / "jobs.jsonl"));
}

// A process that makes a TempDir and waits to be killed; its folder lies under `parent`.
pid_t start_holder(const fs::path& parent, int ready) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setenv("TMPDIR", parent.c_str(), 1);
  const TempDir folder;
  if (::write(ready, "r", 1) == 1) ::pause();
  ::_exit(1);
}

TEST(TempDir, SweepsTheFolderOfAnotherProcessOnceItIsKilled) {
  const TempDir parent;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t holder = start_holder(parent.path(), ready[1]);
  ASSERT_GT(holder, 0);
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const fs::path held = fs::directory_iterator(parent.path())->path();
  make_old(held);
  remove_stale_temp_dirs(parent.path());
  EXPECT_TRUE(fs::exists(held));
  ::kill(holder, SIGKILL);
  ASSERT_EQ(::waitpid(holder, nullptr, 0), holder);
  remove_stale_temp_dirs(parent.path());
  EXPECT_FALSE(fs::exists(held));
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace lockstep
