#include "engine/base/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include <thread>
#include <vector>

#include "engine/base/table.h"

namespace lockstep {
namespace {

TEST(HumanBytes, PicksTheUnit) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1.0 KiB");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(1024.0 * 1024 - 1), "1.0 MiB");
  EXPECT_EQ(human_bytes(12.0 * (1 << 30)), "12.0 GiB");
  EXPECT_EQ(human_bytes(1e30).substr(human_bytes(1e30).size() - 3), "EiB");
}

TEST(HumanDuration, ReadsAsAClock) {
  EXPECT_EQ(human_duration(0), "0:00");
  EXPECT_EQ(human_duration(6.6), "0:07");
  EXPECT_EQ(human_duration(754), "12:34");
  EXPECT_EQ(human_duration(3723), "1:02:03");
  EXPECT_EQ(human_duration(-5), "0:00");
  EXPECT_EQ(human_duration(1e300), "-:--");
}

TEST(ProgressLine, ShowsShareRateAndRemainingTime) {
  EXPECT_EQ(progress_line({"load", "B", 256 << 20, 1024 << 20, 2.0}, 76),
            "load  [####............]   25%  256.0 MiB of 1.0 GiB  128.0 MiB/s  0:06 left");
  EXPECT_EQ(progress_line({"questions", "q", 30, 30, 60.0}, 70),
            "questions  [###################]  100%  30 q of 30 q  0.5 q/s  in 1:00");
  EXPECT_EQ(progress_line({"scan", "files", 12, 0, 4.0}, 70), "scan  12 files  3.0 files/s");
  EXPECT_EQ(progress_line({"start", "q", 0, 10, 0.0}, 40),
            "start  [............]    0%  0 q of 10 q");
}

TEST(ProgressLine, NeverExceedsTheWidth) {
  for (const uint64_t total : {0, 7, 1000000}) {
    for (const uint64_t done : {0, 3, 7, 2000000}) {
      for (int width = 0; width < 130; ++width) {
        const std::string line =
            progress_line({"\u52a0\u8f7d\u6743\u91cd", "B", done, total, 1.5}, width);
        EXPECT_LE(display_width(line), width) << line;
      }
    }
  }
}

// A pseudo-terminal: what the bar writes comes out of `master`.
class Terminal {
 public:
  Terminal() : master_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    EXPECT_EQ(::grantpt(master_), 0);
    EXPECT_EQ(::unlockpt(master_), 0);
    slave_ = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    winsize size{};
    size.ws_col = 60;
    size.ws_row = 24;
    EXPECT_EQ(::ioctl(slave_, TIOCSWINSZ, &size), 0);
  }
  ~Terminal() {
    ::close(slave_);
    ::close(master_);
  }
  int fd() const { return slave_; }
  std::string read_all() const {
    std::string text;
    pollfd waiting{master_, POLLIN, 0};
    while (::poll(&waiting, 1, 0) > 0) {
      char block[4096];
      const ssize_t n = ::read(master_, block, sizeof(block));
      if (n <= 0) break;
      text.append(block, static_cast<size_t>(n));
    }
    return text;
  }

 private:
  int master_;
  int slave_ = -1;
};

TEST(Progress, DrawsOnATerminalAndEndsItsLine) {
  const Terminal terminal;
  {
    Progress progress("work", 4, "steps", terminal.fd());
    for (int i = 0; i < 4; ++i) progress.advance();
    progress.finish();
    progress.advance();
    progress.finish();
  }
  const std::string text = terminal.read_all();
  EXPECT_EQ(text.find("\rwork"), 0u);
  EXPECT_NE(text.find("100%"), std::string::npos);
  EXPECT_EQ(text.find('\n'), text.size() - 1) << "one line, ended once";
}

TEST(Progress, DestructionEndsTheLine) {
  const Terminal terminal;
  { const Progress progress("work", 4, "steps", terminal.fd()); }
  EXPECT_EQ(terminal.read_all().back(), '\n');
}

TEST(Progress, DrawsSeldom) {
  const Terminal terminal;
  {
    Progress progress("work", 100000, "steps", terminal.fd());
    for (int i = 0; i < 1000; ++i) progress.advance(100);
  }
  // A thousand lines would not fit the pseudo-terminal's buffer of 4096 bytes either.
  EXPECT_LT(terminal.read_all().size(), 4096u);
}

TEST(Progress, WritesNothingIntoAPipe) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  {
    Progress progress("work", 10, "steps", ends[1]);
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) progress.advance();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  ::close(ends[1]);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);
  ::close(ends[0]);
}

}  // namespace
}  // namespace lockstep
