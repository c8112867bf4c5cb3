// Transports between cards, two ranks in two processes: on two cards where this machine has them,
// else both on one. Each rank's part runs in a child process, because nobody may fork once CUDA
// has started.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/comm/cuda/card_mailbox.h"
#include "engine/comm/cuda/planted_exchange.h"
#include "engine/comm/cuda/transports.h"
#include "engine/comm/mailbox.h"
#include "engine/device/cuda/cuda_check.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

constexpr int kNoCard = 99;

struct Rank {
  int rank;
  Communicator& host;
  Device& device;
  Stream& stream;
};
using Work = std::function<void(Rank&)>;

// A line on stderr and an exit code say how a rank ended.
int run_rank(int rank, const std::string& mailbox, const Work& work) {
  try {
    const int n_cards = n_cuda_devices();
    if (n_cards == 0) return kNoCard;
    const auto device = open_device(fmt::format("cuda:{}", n_cards > 1 ? rank : 0));
    const auto stream = device->new_stream();
    MailboxOptions options;
    options.deadline = 30s;
    const auto host = join_mailbox(mailbox, rank, options);
    Rank self{rank, *host, *device, *stream};
    work(self);
    return ::testing::Test::HasFailure() ? 1 : 0;
  } catch (const Error& error) {
    fmt::print(stderr, "[rank {}] {}\n", rank, error.what());
    return static_cast<int>(error.code());
  }
}

class Cards : public ::testing::Test {
 protected:
  Cards() : file_(create_mailbox_file()) {}
  ~Cards() override {
    for (const pid_t child : children_) {
      if (child > 0) ::kill(child, SIGKILL);
    }
    ::close(file_);
  }

  void start(const Work& work) {
    const std::string mailbox = fmt::format("/proc/{}/fd/{}", ::getpid(), file_);
    for (const int rank : {0, 1}) {
      children_[rank] = ::fork();
      if (children_[rank] == 0) ::_exit(run_rank(rank, mailbox, work));
    }
  }

  // Exit code, or minus the signal.
  int end_of(int rank) {
    int status = 0;
    ::waitpid(children_[rank], &status, 0);
    children_[rank] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  // Both end well, or this machine has no card.
  void on_both(const Work& work) {
    start(work);
    const int codes[2] = {end_of(0), end_of(1)};
    if (codes[0] == kNoCard) GTEST_SKIP() << "no card";
    EXPECT_EQ(codes[0], 0);
    EXPECT_EQ(codes[1], 0);
  }

  int file_;
  pid_t children_[2] = {};
};

std::vector<uint16_t> sent(int rank, int64_t n, int operation) {
  std::vector<uint16_t> codes(static_cast<size_t>(n));
  for (size_t i = 0; i < codes.size(); ++i) {
    const auto step = static_cast<float>((i * 7 + static_cast<size_t>(operation) * 13) % 251);
    codes[i] = float_to_bf16(step * (rank == 0 ? 0.37f : -0.21f));
  }
  return codes;
}

std::vector<uint16_t> summed(int64_t n, int operation) {
  std::vector<uint16_t> sum = sent(0, n, operation);
  const std::vector<uint16_t> other = sent(1, n, operation);
  for (size_t i = 0; i < sum.size(); ++i) {
    sum[i] = float_to_bf16(bf16_to_float(sum[i]) + bf16_to_float(other[i]));
  }
  return sum;
}

const TransportCandidate& named(const std::vector<TransportCandidate>& all,
                                const std::string& name) {
  for (const TransportCandidate& one : all) {
    if (one.name == name) return one;
  }
  fail("no transport {}", name);
}

class EachTransport : public Cards, public ::testing::WithParamInterface<const char*> {};

TEST_P(EachTransport, ProvesItself) {
  on_both([](Rank& self) {
    const auto all = card_transports(self.host, self.device);
    std::unique_ptr<DeviceCommunicator> transport;
    try {
      transport = named(all, GetParam()).open();
    } catch (const Error& error) {
      fmt::print(stderr, "{}: not on this machine: {}\n", GetParam(), error.what());
      return;
    }
    EXPECT_EQ(transport->name(), GetParam());
    prove_transport(*transport, self.host, self.device, self.stream);
  });
}

// A graph with an odd number of operations, whose slots and numbers move on with each replay, and
// whose inputs change.
TEST_P(EachTransport, ReplaysOfAGraphSumWhatIsThere) {
  constexpr int64_t kValues = 20480;
  constexpr int kReplays = 9;
  on_both([](Rank& self) {
    std::unique_ptr<DeviceCommunicator> transport;
    try {
      transport = named(card_transports(self.host, self.device), GetParam()).open();
    } catch (const Error&) {
      return;
    }
    if (!transport->capturable()) return;
    std::vector<DeviceMemory> memory;
    for (int i = 0; i < 3; ++i) memory.emplace_back(self.device, kValues * 2);
    transport->all_reduce(memory[0].data(), kValues, Rounding::bf16, self.stream);
    transport->synchronize(self.stream);
    const auto native = static_cast<cudaStream_t>(self.stream.native());
    cuda_check(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), "capture");
    for (const DeviceMemory& one : memory) {
      transport->all_reduce(one.data(), kValues, Rounding::bf16, self.stream);
    }
    cudaGraph_t graph = nullptr;
    cuda_check(cudaStreamEndCapture(native, &graph), "capture");
    cudaGraphExec_t replay = nullptr;
    cuda_check(cudaGraphInstantiate(&replay, graph, 0), "instantiate");
    for (int round = 0; round < kReplays; ++round) {
      std::vector<std::vector<uint16_t>> inputs;
      for (int i = 0; i < 3; ++i) inputs.push_back(sent(self.rank, kValues, round * 3 + i));
      for (int i = 0; i < 3; ++i) {
        self.stream.copy_in(memory[static_cast<size_t>(i)].data(),
                            inputs[static_cast<size_t>(i)].data(), kValues * 2);
      }
      cuda_check(cudaGraphLaunch(replay, native), "launch");
      std::vector<uint16_t> seen(kValues);
      for (int i = 0; i < 3; ++i) {
        self.stream.copy_out(seen.data(), memory[static_cast<size_t>(i)].data(), kValues * 2);
        transport->synchronize(self.stream);
        EXPECT_EQ(seen, summed(kValues, round * 3 + i)) << "replay " << round << " sum " << i;
      }
    }
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(graph);
  });
}

INSTANTIATE_TEST_SUITE_P(All, EachTransport, ::testing::Values("device", "host", "nccl", "mailbox"),
                         [](const auto& one) { return std::string(one.param); });

TEST_F(Cards, ChooseTheSameTransport) {
  on_both([](Rank& self) {
    const ChosenTransport chosen = choose_transport("auto", self.host, self.device);
    if (self.rank == 0) fmt::print(stderr, "{}\n", chosen.report);
    char mine[16] = {};
    chosen.transport->name().copy(mine, sizeof(mine) - 1);
    char all[2][16] = {};
    self.host.all_gather_bytes(std::as_bytes(std::span(mine)),
                               std::as_writable_bytes(std::span(&all[0][0], 32)));
    EXPECT_STREQ(all[0], all[1]);
  });
}

// The self-test names a transport that lies, and the next one takes its place.
class Lies : public Cards, public ::testing::WithParamInterface<cuda::ExchangeFault> {};

TEST_P(Lies, AreFoundBeforeTheFirstRound) {
  on_both([](Rank& self) {
    planted_exchange = {"device", 1, GetParam()};
    const auto all = card_transports(self.host, self.device);
    const std::vector<TransportCandidate> two = {named(all, "device"), named(all, "mailbox")};
    auto entries = race_transports(two, self.host, self.device, self.stream,
                                   [](DeviceCommunicator&) { return 1.0; });
    if (self.rank == 0) fmt::print(stderr, "{}\n", to_text(entries));
    EXPECT_EQ(entries[0].transport, nullptr);
    const bool late = GetParam() == cuda::ExchangeFault::flag_missing;
    const char* reason = late ? "did not answer exchange" : "sum of";
    EXPECT_NE(entries[0].refusal.find(reason), std::string::npos) << entries[0].refusal;
    ASSERT_NE(fastest(entries), nullptr);
    EXPECT_EQ(fastest(entries)->name, "mailbox");
  });
}

INSTANTIATE_TEST_SUITE_P(Planted, Lies,
                         ::testing::Values(cuda::ExchangeFault::bit_flipped,
                                           cuda::ExchangeFault::stale_buffer,
                                           cuda::ExchangeFault::flag_missing,
                                           cuda::ExchangeFault::truncated));

class LostPeer : public Cards, public ::testing::WithParamInterface<const char*> {};

// A rank that is killed between two operations: the other ends at its deadline, not before and not
// never.
TEST_P(LostPeer, EndsWithTheDeadline) {
  start([](Rank& self) {
    auto transport = named(card_transports(self.host, self.device), GetParam()).open();
    transport->set_deadline(1s);
    DeviceMemory values(self.device, 40960);
    for (int i = 0; i < 100; ++i) {
      if (self.rank == 1 && i == 50) ::kill(::getpid(), SIGKILL);
      transport->all_reduce(values.data(), 20480, Rounding::bf16, self.stream);
      transport->synchronize(self.stream);
    }
  });
  const int code = end_of(1);
  if (code == kNoCard) GTEST_SKIP() << "no card";
  EXPECT_EQ(code, -SIGKILL);
  EXPECT_EQ(end_of(0), static_cast<int>(ExitCode::deadline));
}

// A rank that leaves in order says so: the other does not wait for its deadline.
TEST_P(LostPeer, SaysThatItLeaves) {
  start([](Rank& self) {
    auto transport = named(card_transports(self.host, self.device), GetParam()).open();
    DeviceMemory values(self.device, 40960);
    for (int i = 0; i < 100; ++i) {
      if (self.rank == 1 && i == 50) {
        transport.reset();
        return;
      }
      transport->all_reduce(values.data(), 20480, Rounding::bf16, self.stream);
      transport->synchronize(self.stream);
    }
  });
  const int code = end_of(1);
  if (code == kNoCard) GTEST_SKIP() << "no card";
  EXPECT_EQ(code, 0);
  EXPECT_EQ(end_of(0), static_cast<int>(ExitCode::peer_lost));
}

INSTANTIATE_TEST_SUITE_P(Mailboxes, LostPeer, ::testing::Values("device", "host"),
                         [](const auto& one) { return std::string(one.param); });

// After a wait that failed, operations end at once: a graph of a hundred of them does not wait for
// a hundred deadlines.
TEST_F(Cards, OneDeadlineIsTheLast) {
  start([](Rank& self) {
    auto transport = named(card_transports(self.host, self.device), "device").open();
    transport->set_deadline(500ms);
    DeviceMemory values(self.device, int64_t{1} << 20);
    if (self.rank == 1) {
      std::this_thread::sleep_for(3s);
      ::_exit(0);
    }
    for (int i = 0; i < 100; ++i) {
      transport->all_reduce(values.data(), i % 2 == 0 ? 20480 : 500000, Rounding::bf16,
                            self.stream);
    }
    self.stream.synchronize();
    try {
      transport->synchronize(self.stream);
      ADD_FAILURE() << "a sum without a peer";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::deadline);
      EXPECT_NE(std::string(error.what()).find("exchange 1 of the device transport"),
                std::string::npos)
          << error.what();
    }
  });
  const int codes[2] = {end_of(0), end_of(1)};
  if (codes[0] == kNoCard) GTEST_SKIP() << "no card";
  EXPECT_EQ(codes[0], 0);
  EXPECT_EQ(codes[1], 0);
}

}  // namespace
}  // namespace lockstep
