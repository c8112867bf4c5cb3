// The staged transport gives the bits of the mailbox, and a watched stream the transport's errors.
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/comm/device_communicator.h"
#include "engine/comm/mailbox.h"

namespace lockstep {
namespace {

class Staged : public ::testing::Test {
 protected:
  Staged() : file_(create_mailbox_file()), device_(open_device("cpu")) {
    MailboxOptions options;
    options.deadline = std::chrono::seconds(2);
    for (const int rank : {0, 1}) {
      hosts_[rank] = join_mailbox("/proc/self/fd/" + std::to_string(file_), rank, options);
      staged_[rank] = make_staged_communicator(*hosts_[rank]);
      streams_[rank] = watched_stream(device_->new_stream(), staged_[rank].get());
    }
  }
  ~Staged() override { ::close(file_); }

  template <typename Work>
  void on_both(const Work& work) {
    std::thread other([&] { work(1); });
    work(0);
    other.join();
  }

  int file_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Communicator> hosts_[2];
  std::unique_ptr<DeviceCommunicator> staged_[2];
  std::unique_ptr<Stream> streams_[2];
};

TEST_F(Staged, SumsAreRoundedOnce) {
  // 1 + 2^-8 lies between two bfloat16 values: ties go to even. 0.1 + 0.2 in float32 is no tie.
  std::vector<uint16_t> codes[2] = {{float_to_bf16(1.0f), float_to_bf16(1.0f), 0x8000},
                                    {float_to_bf16(0.00390625f), float_to_bf16(0.01171875f), 0}};
  std::vector<float> values[2] = {{0.1f, 3.0f}, {0.2f, -3.0f}};
  on_both([&](int rank) {
    staged_[rank]->all_reduce(codes[rank].data(), 3, Rounding::bf16, *streams_[rank]);
    staged_[rank]->all_reduce(values[rank].data(), 2, Rounding::none, *streams_[rank]);
    streams_[rank]->synchronize();
  });
  for (const int rank : {0, 1}) {
    EXPECT_EQ(codes[rank], (std::vector<uint16_t>{0x3f80, 0x3f82, 0}));
    EXPECT_EQ(values[rank], (std::vector<float>{0.1f + 0.2f, 0.0f}));
  }
}

TEST_F(Staged, BlocksComeInTheOrderOfRanks) {
  std::vector<int32_t> all[2] = {std::vector<int32_t>(6), std::vector<int32_t>(6)};
  on_both([&](int rank) {
    const std::vector<int32_t> mine = {rank * 10, rank * 10 + 1, rank * 10 + 2};
    staged_[rank]->all_gather(mine.data(), 12, all[rank].data(), *streams_[rank]);
    streams_[rank]->synchronize();
  });
  for (const int rank : {0, 1}) {
    EXPECT_EQ(all[rank], (std::vector<int32_t>{0, 1, 2, 10, 11, 12}));
  }
}

TEST_F(Staged, APeerThatLeftEndsTheCall) {
  hosts_[1].reset();
  float value = 1.0f;
  try {
    staged_[0]->all_reduce(&value, 1, Rounding::none, *streams_[0]);
    FAIL() << "an all-reduce of one rank ended well";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::peer_lost);
  }
}

// A transport whose waits fail: the stream's user sees it.
class Failing final : public DeviceCommunicator {
 public:
  std::string_view name() const override { return "failing"; }
  bool capturable() const override { return false; }
  void all_reduce(void*, int64_t, Rounding, Stream&) override {}
  void all_gather(const void*, int64_t, void*, Stream&) override {}
  void synchronize(Stream&) override { fail_with(ExitCode::deadline, "late"); }
};

TEST(WatchedStream, EndsWithTheTransportsError) {
  const auto device = open_device("cpu");
  Failing failing;
  EXPECT_THROW(watched_stream(device->new_stream(), &failing)->synchronize(), Error);
  EXPECT_NO_THROW(watched_stream(device->new_stream(), nullptr)->synchronize());
}

}  // namespace
}  // namespace lockstep
