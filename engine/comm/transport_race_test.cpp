// The choice of a transport, with ranks on threads and a CPU's memory: liars are found and named,
// both ranks take the same, rank 0's times count.
#include "engine/comm/transport_race.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "engine/base/error.h"
#include "engine/comm/by_size.h"
#include "engine/comm/mailbox.h"
#include "engine/comm/steps.h"

namespace lockstep {
namespace {

// The staged transport, changed on its way by what a test wants.
class Changed : public DeviceCommunicator {
 public:
  Changed(Communicator& host, std::string name)
      : honest_(make_staged_communicator(host)), name_(std::move(name)) {}

  std::string_view name() const override { return name_; }
  bool capturable() const override { return true; }
  void set_deadline(std::chrono::milliseconds deadline) override { deadline_ = deadline; }
  void all_reduce(void* data, int64_t n, Rounding exchange_type, Stream& stream) override {
    ++n_sums;
    honest_->all_reduce(data, n, exchange_type, stream);
  }
  void all_gather(const void* in, int64_t n_bytes, void* out, Stream& stream) override {
    ++n_gathers;
    honest_->all_gather(in, n_bytes, out, stream);
  }
  void synchronize(Stream& stream) override { honest_->synchronize(stream); }

  int n_sums = 0;
  int n_gathers = 0;
  std::chrono::milliseconds deadline() const { return deadline_; }

 private:
  std::unique_ptr<DeviceCommunicator> honest_;
  std::string name_;
  std::chrono::milliseconds deadline_{0};
};

class FlipsABit final : public Changed {
 public:
  using Changed::Changed;
  void all_reduce(void* data, int64_t n, Rounding exchange_type, Stream& stream) override {
    Changed::all_reduce(data, n, exchange_type, stream);
    if (n > 20000) static_cast<uint16_t*>(data)[n - 1] ^= 1u;
  }
};

class KeepsOldBuffers final : public Changed {
 public:
  using Changed::Changed;
  void all_gather(const void* in, int64_t n_bytes, void* out, Stream& stream) override {
    Changed::all_gather(in, n_bytes, out, stream);
    if (n_gathers == 6) static_cast<uint32_t*>(out)[1] = 0;
  }
};

class SaysItIsLate final : public Changed {
 public:
  using Changed::Changed;
  void synchronize(Stream&) override {
    fail_with(ExitCode::deadline, "no answer within {} ms", deadline().count());
  }
};

class Race : public ::testing::Test {
 protected:
  Race() : file_(create_mailbox_file()), device_(open_device("cpu")) {
    MailboxOptions options;
    options.deadline = std::chrono::minutes(1);
    for (const int rank : {0, 1}) {
      hosts_[rank] = join_mailbox("/proc/self/fd/" + std::to_string(file_), rank, options);
    }
  }
  ~Race() override { ::close(file_); }

  template <typename Transport>
  TransportCandidate candidate(int rank, const std::string& name) {
    return {name, [this, rank, name] { return std::make_unique<Transport>(*hosts_[rank], name); }};
  }

  // make(rank) gives the candidates of a rank, time(rank, name) what it measures.
  template <typename Make, typename Time>
  std::array<std::vector<TransportEntry>, 2> race(const Make& make, const Time& time) {
    std::array<std::vector<TransportEntry>, 2> entries;
    const auto run = [&](int rank) {
      const auto stream = device_->new_stream();
      entries[static_cast<size_t>(rank)] = race_transports(
          make(rank), *hosts_[rank], *device_, *stream,
          [&](DeviceCommunicator& one) { return time(rank, std::string(one.name())); });
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    return entries;
  }

  int file_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Communicator> hosts_[2];
};

TEST_F(Race, LiarsAreNamedAndTheFastestHonestOneWins) {
  auto entries = race(
      [&](int rank) {
        return std::vector<TransportCandidate>{
            candidate<FlipsABit>(rank, "flips"), candidate<KeepsOldBuffers>(rank, "old"),
            candidate<SaysItIsLate>(rank, "late"), candidate<Changed>(rank, "slow"),
            candidate<Changed>(rank, "fast")};
      },
      [](int, const std::string& name) { return name == "fast" ? 4.0 : 20.0; });
  for (auto& mine : entries) {
    ASSERT_EQ(mine.size(), 5u);
    EXPECT_NE(mine[0].refusal.find("rank 0: sum of 20480 bfloat16 values: value 20479 is"),
              std::string::npos)
        << mine[0].refusal;
    EXPECT_NE(mine[1].refusal.find("gather of 3 words: value 1 is 0x0, not"), std::string::npos)
        << mine[1].refusal;
    EXPECT_EQ(mine[2].refusal, "rank 0: no answer within 5000 ms");
    ASSERT_NE(fastest(mine), nullptr);
    EXPECT_EQ(fastest(mine)->name, "fast");
    const auto& winner = static_cast<const Changed&>(*fastest(mine)->transport);
    EXPECT_EQ(winner.deadline(), kTransportDeadline);
    EXPECT_GT(winner.n_sums, 0);
    EXPECT_GT(winner.n_gathers, 4);
    EXPECT_NE(to_text(mine).find("slow 20.0 us, fast 4.0 us"), std::string::npos) << to_text(mine);
  }
}

// A lie that only rank 1 sees, and a card that only rank 1 lacks: both ranks refuse.
TEST_F(Race, WhatOneRankRefusesBothRefuse) {
  auto entries = race(
      [&](int rank) {
        std::vector<TransportCandidate> all;
        all.push_back(rank == 1 ? candidate<FlipsABit>(rank, "one-sided")
                                : candidate<Changed>(rank, "one-sided"));
        all.push_back({"absent", [this, rank]() -> std::unique_ptr<DeviceCommunicator> {
                         in_step(*hosts_[rank], [&] {
                           if (rank == 1) fail_with(ExitCode::device_error, "no peer access");
                         });
                         return std::make_unique<Changed>(*hosts_[rank], "absent");
                       }});
        return all;
      },
      [](int, const std::string&) { return 1.0; });
  for (auto& mine : entries) {
    EXPECT_EQ(mine[0].refusal.find("rank 1: sum of"), 0u) << mine[0].refusal;
    EXPECT_EQ(mine[1].refusal, "rank 1: no peer access");
    EXPECT_EQ(fastest(mine), nullptr);
  }
}

TEST_F(Race, TimesOfRank0Decide) {
  auto entries = race(
      [&](int rank) {
        return std::vector<TransportCandidate>{candidate<Changed>(rank, "a"),
                                               candidate<Changed>(rank, "b")};
      },
      [](int rank, const std::string& name) { return (rank == 0) == (name == "b") ? 3.0 : 5.0; });
  for (auto& mine : entries) {
    EXPECT_EQ(fastest(mine)->name, "b");
    EXPECT_EQ(mine[0].microseconds, 5.0);
  }
}

TEST_F(Race, APeerThatDiesIsNoRefusal) {
  hosts_[1].reset();
  const auto stream = device_->new_stream();
  try {
    race_transports({candidate<Changed>(0, "any")}, *hosts_[0], *device_, *stream,
                    [](DeviceCommunicator&) { return 1.0; });
    FAIL() << "a race of one rank ended";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::peer_lost);
  }
}

TEST_F(Race, LargeMessagesTakeTheOtherTransport) {
  const auto run = [&](int rank) {
    auto small = std::make_unique<Changed>(*hosts_[rank], "small");
    auto large = std::make_unique<Changed>(*hosts_[rank], "large");
    const Changed* of_small = small.get();
    const Changed* of_large = large.get();
    const auto both = by_message_size(std::move(small), std::move(large), 64);
    const auto stream = device_->new_stream();
    std::vector<float> values(64);
    std::vector<float> all(128);
    both->all_reduce(values.data(), 32, Rounding::bf16, *stream);
    both->all_reduce(values.data(), 16, Rounding::none, *stream);
    both->all_gather(values.data(), 64, all.data(), *stream);
    EXPECT_EQ(of_large->n_sums + of_large->n_gathers, 0);
    both->all_reduce(values.data(), 33, Rounding::bf16, *stream);
    both->all_reduce(values.data(), 17, Rounding::none, *stream);
    both->all_gather(values.data(), 68, all.data(), *stream);
    both->synchronize(*stream);
    EXPECT_EQ(of_small->n_sums, 2);
    EXPECT_EQ(of_small->n_gathers, 1);
    EXPECT_EQ(of_large->n_sums, 2);
    EXPECT_EQ(of_large->n_gathers, 1);
    EXPECT_EQ(both->name(), "small");
    EXPECT_GT(of_large->deadline(), of_small->deadline());
  };
  std::thread other(run, 1);
  run(0);
  other.join();
}

}  // namespace
}  // namespace lockstep
