#include "engine/comm/mailbox.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/ops/residual_add/residual_add.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMagic = 0x4c4f434b4d424f58;  // "LOCKMBOX"
constexpr int kRanks = 2;
constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr int kSpins = 20000;  // about 100 us

enum class Operation : uint32_t { all_reduce = 1, all_gather = 2, bytes = 3 };

const char* operation_name(Operation operation) {
  switch (operation) {
    case Operation::all_reduce:
      return "all-reduce";
    case Operation::all_gather:
      return "all-gather";
    default:
      return "record exchange";
  }
}

struct MessageHeader {
  Operation operation;
  uint32_t n_bytes;
};

// One rank's side. Counters are alone on their cache lines.
struct alignas(64) Side {
  std::atomic<uint32_t> published{0};             // messages written so far
  std::atomic<uint32_t> sleeping{0};              // 1 while this rank sleeps on the peer's counter
  alignas(64) std::atomic<uint32_t> left{0};      // 1 once this rank has gone
  std::atomic<uint32_t> idle{0};                  // 1 while this rank waits for work
  alignas(64) std::atomic<uint32_t> doorbell{0};  // rung to end this rank's wait for work
  alignas(64) MessageHeader headers[2];
  alignas(64) std::byte buffers[2][kBufferBytes];
};

struct Shared {
  std::atomic<uint64_t> magic{0};
  Side sides[kRanks];
};

static_assert(std::atomic<uint32_t>::is_always_lock_free);

void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

void futex_wait(const std::atomic<uint32_t>& word, uint32_t seen,
                std::chrono::milliseconds timeout) {
  const timespec limit{timeout.count() / 1000, (timeout.count() % 1000) * 1000000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void futex_wake(const std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

class Mailbox final : public Communicator {
 public:
  Mailbox(Shared* shared, int rank, const MailboxOptions& options)
      : shared_(shared), rank_(rank), options_(options) {}

  ~Mailbox() override {
    mine().left.store(1, std::memory_order_release);
    futex_wake(mine().published);
    ring(peer());
    ::munmap(shared_, sizeof(Shared));
  }

  int rank() const override { return rank_; }
  int n_ranks() const override { return kRanks; }

  void all_reduce(float* data, int64_t n, Rounding exchange_type) override {
    const bool bf16 = exchange_type == Rounding::bf16;
    const int64_t piece = static_cast<int64_t>(kBufferBytes / (bf16 ? 2 : 4));
    for (int64_t done = 0; done < n; done += piece) {
      const int64_t count = std::min(piece, n - done);
      reduce_piece(data + done, count, exchange_type);
    }
  }

  void all_gather(const float* in, int64_t n, float* out) override {
    const auto bytes = std::as_bytes(std::span(in, static_cast<size_t>(n)));
    gather(Operation::all_gather, bytes,
           std::as_writable_bytes(std::span(out, static_cast<size_t>(n * kRanks))));
  }

  void all_gather_bytes(std::span<const std::byte> in, std::span<std::byte> out) override {
    gather(Operation::bytes, in, out);
  }

  void wait_for_work(std::chrono::milliseconds limit) override {
    mine().idle.store(1, std::memory_order_seq_cst);
    const uint32_t rung = mine().doorbell.load(std::memory_order_seq_cst);
    if (rung == n_rung_ && !peer_has_begun()) futex_wait(mine().doorbell, rung, limit);
    n_rung_ = mine().doorbell.load(std::memory_order_seq_cst);
    mine().idle.store(0, std::memory_order_seq_cst);
    if (peer().left.load(std::memory_order_acquire) != 0 && !peer_has_begun()) {
      fail_with(ExitCode::peer_lost, "rank {}: rank {} left while both were idle", rank_,
                1 - rank_);
    }
  }

  bool peer_has_begun() override {
    const uint32_t next = n_exchanged_ + 1;
    return static_cast<int32_t>(peer().published.load(std::memory_order_seq_cst) - next) >= 0;
  }

  void wake() override { ring(mine()); }

 private:
  static void ring(Side& side) {
    side.doorbell.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(side.doorbell);
  }

  Side& mine() { return shared_->sides[rank_]; }
  Side& peer() { return shared_->sides[1 - rank_]; }

  void reduce_piece(float* data, int64_t n, Rounding exchange_type) {
    const auto count = static_cast<size_t>(n);
    const bool bf16 = exchange_type == Rounding::bf16;
    std::byte* out = begin_message();
    if (bf16) {
      auto* packed = reinterpret_cast<uint16_t*>(out);
      for (size_t i = 0; i < count; ++i) packed[i] = float_to_bf16(data[i]);
    } else {
      std::memcpy(out, data, count * sizeof(float));
    }
    const std::byte* theirs = exchange(Operation::all_reduce, count * (bf16 ? 2 : 4));
    peer_values_.resize(count);
    if (bf16) {
      const auto* packed = reinterpret_cast<const uint16_t*>(theirs);
      for (size_t i = 0; i < count; ++i) peer_values_[i] = bf16_to_float(packed[i]);
    } else {
      std::memcpy(peer_values_.data(), theirs, count * sizeof(float));
    }
    const float* p0 = rank_ == 0 ? data : peer_values_.data();
    const float* p1 = rank_ == 0 ? peer_values_.data() : data;
    sum_partials(p0, p1, data, n, exchange_type);
  }

  void gather(Operation operation, std::span<const std::byte> in, std::span<std::byte> out) {
    LOCKSTEP_CHECK(out.size() == in.size() * kRanks);
    for (size_t done = 0; done < in.size(); done += kBufferBytes) {
      const size_t count = std::min(kBufferBytes, in.size() - done);
      std::memcpy(begin_message(), in.data() + done, count);
      const std::byte* theirs = exchange(operation, count);
      std::memcpy(out.data() + static_cast<size_t>(rank_) * in.size() + done, in.data() + done,
                  count);
      std::memcpy(out.data() + static_cast<size_t>(1 - rank_) * in.size() + done, theirs, count);
    }
  }

  std::byte* begin_message() { return mine().buffers[n_exchanged_ % 2]; }

  // Publishes the message in this rank's buffer and returns the peer's of the same operation.
  const std::byte* exchange(Operation operation, size_t n_bytes) {
    const uint32_t index = n_exchanged_ % 2;
    mine().headers[index] = {operation, static_cast<uint32_t>(n_bytes)};
    ++n_exchanged_;
    mine().published.store(n_exchanged_, std::memory_order_seq_cst);
    if (peer().sleeping.load(std::memory_order_seq_cst) != 0) futex_wake(mine().published);
    if (peer().idle.load(std::memory_order_seq_cst) != 0) ring(peer());
    wait_for_peer(operation);
    const MessageHeader& theirs = peer().headers[index];
    if (theirs.operation != operation || theirs.n_bytes != n_bytes) {
      fail_with(
          ExitCode::lockstep_failure,
          "TP2 LOCKSTEP FAILURE operation {}: rank {} is at {} of {} bytes, rank {} at {} of {} "
          "bytes",
          n_exchanged_ - 1, rank_, operation_name(operation), n_bytes, 1 - rank_,
          operation_name(theirs.operation), theirs.n_bytes);
    }
    return peer().buffers[index];
  }

  // Counters wrap: "arrived" means that the distance is not negative.
  bool arrived() {
    return static_cast<int32_t>(peer().published.load(std::memory_order_seq_cst) - n_exchanged_) >=
           0;
  }

  void wait_for_peer(Operation operation) {
    for (int i = 0; options_.spin && i < kSpins; ++i) {
      if (arrived()) return;
      cpu_relax();
    }
    const auto deadline = Clock::now() + options_.deadline;
    while (!arrived()) {
      const uint32_t seen = peer().published.load(std::memory_order_seq_cst);
      mine().sleeping.store(1, std::memory_order_seq_cst);
      if (!arrived() && peer().left.load(std::memory_order_acquire) == 0) {
        futex_wait(peer().published, seen, std::chrono::milliseconds(100));
      }
      mine().sleeping.store(0, std::memory_order_seq_cst);
      if (arrived()) return;
      if (peer().left.load(std::memory_order_acquire) != 0) {
        fail_with(ExitCode::peer_lost, "rank {}: rank {} left during {} {}", rank_, 1 - rank_,
                  operation_name(operation), n_exchanged_ - 1);
      }
      if (Clock::now() > deadline) {
        fail_with(ExitCode::deadline, "rank {}: rank {} did not answer {} {} within {} ms", rank_,
                  1 - rank_, operation_name(operation), n_exchanged_ - 1,
                  options_.deadline.count());
      }
    }
  }

  Shared* shared_;
  int rank_;
  MailboxOptions options_;
  uint32_t n_exchanged_ = 0;
  uint32_t n_rung_ = 0;  // of this rank's doorbell, as last seen
  std::vector<float> peer_values_;
};

}  // namespace

int create_mailbox_file() {
  const int fd = ::memfd_create("lockstep-mailbox", 0);
  if (fd < 0 || ::ftruncate(fd, sizeof(Shared)) != 0) {
    fail("cannot create the mailbox: {}", std::strerror(errno));
  }
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) fail("cannot map the mailbox: {}", std::strerror(errno));
  auto* shared = new (memory) Shared;
  shared->magic.store(kMagic, std::memory_order_release);
  ::munmap(memory, sizeof(Shared));
  return fd;
}

std::unique_ptr<Communicator> join_mailbox(const std::filesystem::path& path, int rank,
                                           const MailboxOptions& options) {
  LOCKSTEP_CHECK(rank == 0 || rank == 1);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) fail("mailbox {}: {}", path.string(), std::strerror(errno));
  struct stat status {};
  const bool fits = ::fstat(fd, &status) == 0 && status.st_size == off_t{sizeof(Shared)};
  void* memory = fits ? ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                      : MAP_FAILED;
  ::close(fd);
  if (memory == MAP_FAILED) fail("mailbox {}: is not a mailbox of this build", path.string());
  auto* shared = static_cast<Shared*>(memory);
  if (shared->magic.load(std::memory_order_acquire) != kMagic) {
    ::munmap(memory, sizeof(Shared));
    fail("mailbox {}: is not a mailbox of this build", path.string());
  }
  return std::make_unique<Mailbox>(shared, rank, options);
}

}  // namespace lockstep
