// Idle ranks: they wait without a deadline, wake when a peer begins or a thread rings, and notice
// that a peer has left.
#include "engine/comm/mailbox.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "engine/base/error.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

class IdleMailbox : public ::testing::Test {
 protected:
  IdleMailbox() : file_(create_mailbox_file()) {
    MailboxOptions options;
    options.deadline = 2s;
    const std::string path = "/proc/self/fd/" + std::to_string(file_);
    for (const int rank : {0, 1}) ranks_[rank] = join_mailbox(path, rank, options);
  }
  ~IdleMailbox() override { ::close(file_); }

  // Both ranks exchange their numbers; returns the sum that rank `rank` sees.
  int exchange(int rank) {
    const std::byte mine{static_cast<unsigned char>(rank + 1)};
    std::vector<std::byte> all(2);
    ranks_[rank]->all_gather_bytes(std::span(&mine, 1), all);
    return std::to_integer<int>(all[0]) + std::to_integer<int>(all[1]);
  }

  int file_;
  std::unique_ptr<Communicator> ranks_[2];
};

TEST_F(IdleMailbox, APeerThatBeginsWakesTheOther) {
  for (int i = 0; i < 200; ++i) {
    std::thread idle([this] {
      while (!ranks_[1]->peer_has_begun()) ranks_[1]->wait_for_work(1h);
      EXPECT_EQ(exchange(1), 3);
    });
    EXPECT_EQ(exchange(0), 3);
    idle.join();
    EXPECT_FALSE(ranks_[0]->peer_has_begun());
    EXPECT_FALSE(ranks_[1]->peer_has_begun());
  }
}

TEST_F(IdleMailbox, NoWakeIsLost) {
  std::atomic<int> handed_in{0};
  int taken = 0;
  constexpr int kItems = 2000;
  std::thread giver([&] {
    for (int i = 0; i < kItems; ++i) {
      ++handed_in;
      ranks_[0]->wake();
    }
  });
  while (taken < kItems) {
    ranks_[0]->wait_for_work(1h);
    taken = handed_in;
  }
  giver.join();
}

TEST_F(IdleMailbox, IdlenessHasNoDeadline) {
  MailboxOptions hasty;
  hasty.deadline = 1ms;
  const int file = create_mailbox_file();
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  const auto rank = join_mailbox(path, 0, hasty);
  const auto peer = join_mailbox(path, 1, hasty);
  EXPECT_NO_THROW(rank->wait_for_work(50ms));
  EXPECT_FALSE(rank->peer_has_begun());
  ::close(file);
}

TEST_F(IdleMailbox, AnIdleRankNoticesThatItsPeerLeft) {
  std::thread leaver([this] { ranks_[1].reset(); });
  try {
    for (;;) ranks_[0]->wait_for_work(1h);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::peer_lost);
  }
  leaver.join();
}

TEST(SingleRank, WakesFromItsOwnThreads) {
  const auto comm = make_single_rank_communicator();
  comm->wake();
  comm->wait_for_work(1h);
  std::thread giver([&] { comm->wake(); });
  comm->wait_for_work(1h);
  giver.join();
  EXPECT_FALSE(comm->peer_has_begun());
}

}  // namespace
}  // namespace lockstep
