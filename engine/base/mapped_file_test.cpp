#include "engine/base/mapped_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "engine/base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class MappedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "lockstep-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  // The message of the Error that `body` throws.
  template <typename Body>
  static std::string error_of(Body&& body) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::fail);
      return error.what();
    }
    return "no error";
  }

  size_t n_entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  fs::path folder_;
};

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST_F(MappedFileTest, ShowsTheBytes) {
  const std::string text = std::string("abc\0def", 7) + std::string(10000, 'x');
  EXPECT_EQ(text_of(MappedFile(write("file", text))), text);
}

TEST_F(MappedFileTest, MovesLeaveNothingBehind) {
  MappedFile first(write("a", "first"));
  MappedFile moved(std::move(first));
  EXPECT_EQ(text_of(moved), "first");
  EXPECT_TRUE(first.bytes().empty());
  MappedFile other(write("b", "second"));
  moved = std::move(other);
  EXPECT_EQ(text_of(moved), "second");
  MappedFile empty;
  EXPECT_TRUE(empty.bytes().empty());
}

TEST_F(MappedFileTest, SaysBeforehandWhatCouldNotBeWritten) {
  const auto refusal = [](const fs::path& path) {
    return error_of([&] { require_writable("--store", path); });
  };
  EXPECT_EQ(refusal(folder_ / "new"), "no error");
  EXPECT_EQ(refusal(write("old", "x")), "no error");
  EXPECT_EQ(refusal("in-this-folder"), "no error");
  EXPECT_EQ(refusal("/dev/null"), "no error");
  fs::create_symlink(folder_ / "old", folder_ / "link");
  EXPECT_EQ(refusal(folder_ / "link"), "no error");
  EXPECT_EQ(refusal(folder_), "--store " + folder_.string() + ": is a folder: name a file in it");
  EXPECT_EQ(refusal("/nonexistent/x"),
            "--store /nonexistent/x: /nonexistent is no folder: make it first");
  EXPECT_NE(refusal(folder_ / "old" / "x").find("old is no folder"), std::string::npos);
  if (::geteuid() == 0) return;  // root may write anywhere
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_NE(refusal(folder_ / "new").find("cannot be written: "), std::string::npos);
  fs::permissions(folder_, fs::perms::owner_all);
}

TEST_F(MappedFileTest, OutlivesTheNameOfTheFile) {
  const fs::path path = write("file", "still here");
  const MappedFile file(path);
  fs::remove(path);
  EXPECT_EQ(text_of(file), "still here");
}

TEST_F(MappedFileTest, NamesWhatItCannotMap) {
  const fs::path missing = folder_ / "missing";
  EXPECT_EQ(error_of([&] { MappedFile{missing}; }),
            missing.string() + ": No such file or directory");
  EXPECT_EQ(error_of([&] { MappedFile{folder_}; }), folder_.string() + ": is not a regular file");
  const fs::path empty = write("empty", "");
  EXPECT_EQ(error_of([&] { MappedFile{empty}; }), empty.string() + ": is empty");
  const fs::path below_a_file = empty / "x";
  EXPECT_EQ(error_of([&] { MappedFile{below_a_file}; }),
            below_a_file.string() + ": Not a directory");
}

TEST_F(MappedFileTest, DoesNotHangOnAFifo) {
  const fs::path fifo = folder_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string want = fifo.string() + ": is not a regular file";
  EXPECT_EQ(error_of([&] { MappedFile{fifo}; }), want);
  EXPECT_EQ(error_of([&] { read_text_file(fifo); }), want);
}

TEST_F(MappedFileTest, ReadsTextUpToTheLimit) {
  const std::string text(100000, 'q');
  const fs::path path = write("text", text);
  EXPECT_EQ(read_text_file(path), text);
  EXPECT_EQ(read_text_file(path, 100000), text);
  EXPECT_NE(error_of([&] { read_text_file(path, 99999); }).find("99999"), std::string::npos);
  EXPECT_EQ(read_text_file(write("empty", "")), "");
  EXPECT_EQ(error_of([&] { read_text_file(folder_ / "none"); }),
            (folder_ / "none").string() + ": No such file or directory");
}

TEST_F(MappedFileTest, ReadsFilesThatHideTheirSize) {
  EXPECT_NE(read_text_file("/proc/self/status").find("Pid:"), std::string::npos);
  EXPECT_NE(error_of([] { read_text_file("/proc/self/status", 10); }), "no error");
}

TEST_F(MappedFileTest, WritesAtomicallyAndLeavesNoTemporary) {
  const fs::path path = folder_ / "out";
  write_file_atomically(path, "one");
  EXPECT_EQ(read_text_file(path), "one");
  const MappedFile before(path);
  write_file_atomically(path, std::string(5000000, 'z'));
  EXPECT_EQ(text_of(before), "one") << "an open reader keeps the old file";
  EXPECT_EQ(read_text_file(path).size(), 5000000u);
  write_file_atomically(path, "");
  EXPECT_EQ(read_text_file(path), "");
  EXPECT_EQ(n_entries(), 1u);
}

TEST_F(MappedFileTest, WhatIsNoFileIsWrittenToAndStays) {
  const fs::path link = folder_ / "link";
  fs::create_symlink("real", link);
  write("real", "old");
  write_file_atomically(link, "new");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(read_text_file(folder_ / "real"), "new");
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  write_file_atomically(pipe, "abc");
  char got[4] = {};
  EXPECT_EQ(::read(reader, got, sizeof(got)), 3);
  EXPECT_STREQ(got, "abc");
  EXPECT_TRUE(fs::is_fifo(pipe));
  ::close(reader);
}

TEST_F(MappedFileTest, AFailedWriteNamesThePathAndLeavesNothing) {
  const fs::path no_folder = folder_ / "none" / "out";
  EXPECT_EQ(error_of([&] { write_file_atomically(no_folder, "x"); }),
            no_folder.string() + ": No such file or directory");
  const fs::path is_folder = folder_ / "folder";
  fs::create_directory(is_folder);
  write("folder/inside", "x");
  EXPECT_NE(error_of([&] { write_file_atomically(is_folder, "x"); }), "no error");
  EXPECT_EQ(n_entries(), 1u);
}

TEST_F(MappedFileTest, ReadersSeeWholeFilesWhileThreadsWrite) {
  const fs::path path = folder_ / "shared";
  write_file_atomically(path, std::string(4096, 'a'));
  const auto write_often = [&](char letter) {
    for (int i = 0; i < 20; ++i) write_file_atomically(path, std::string(4096, letter));
  };
  std::thread first(write_often, 'b');
  std::thread second(write_often, 'c');
  for (int i = 0; i < 200; ++i) {
    const std::string text = read_text_file(path);
    EXPECT_EQ(text, std::string(4096, text.empty() ? '?' : text[0]));
  }
  first.join();
  second.join();
  EXPECT_EQ(n_entries(), 1u);
}

}  // namespace
}  // namespace lockstep
