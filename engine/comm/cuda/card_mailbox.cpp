#include "engine/comm/cuda/card_mailbox.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "engine/base/error.h"
#include "engine/comm/cuda/exchange_kernel.h"
#include "engine/comm/cuda/planted_exchange.h"
#include "engine/comm/steps.h"
#include "engine/device/cuda/cuda_check.h"

namespace lockstep {
namespace {

using cuda::ExchangeArgs;
using cuda::ExchangeKind;

constexpr int64_t kWholeInbox = static_cast<int64_t>(sizeof(cuda::InboxHead)) + cuda::kInboxBytes;

// Where the inboxes of both ranks are, as this rank's card sees them.
class Inboxes {
 public:
  virtual ~Inboxes() = default;
  std::byte* mine = nullptr;
  std::byte* peer = nullptr;

  // Both ranks together. Throws Error on both.
  virtual void open(Communicator& host, Device& device) = 0;
  // Tells the peer's kernels that this rank has gone.
  virtual void leave() = 0;
};

template <typename T>
std::vector<T> gathered(Communicator& host, const T& mine) {
  std::vector<T> all(static_cast<size_t>(host.n_ranks()));
  host.all_gather_bytes(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

class DeviceInboxes final : public Inboxes {
 public:
  ~DeviceInboxes() override {
    if (peer != nullptr) cudaIpcCloseMemHandle(peer);
  }

  void open(Communicator& host, Device& device) override {
    struct Handle {
      cudaIpcMemHandle_t memory;
      pid_t process;
    } handle{};
    in_step(host, [&] {
      memory_ = DeviceMemory(device, kWholeInbox);
      mine = memory_.data();
      cuda_check(cudaMemset(mine, 0, kWholeInbox), "cudaMemset");
      cuda_check(cudaDeviceSynchronize(), "cudaMemset");
      handle.process = ::getpid();
      cuda_check(cudaIpcGetMemHandle(&handle.memory, mine), "cudaIpcGetMemHandle");
    });
    const std::vector<Handle> all = gathered(host, handle);
    in_step(host, [&] {
      const Handle& theirs = all[static_cast<size_t>(1 - host.rank())];
      if (theirs.process == handle.process) {
        fail("device mailbox: both ranks are in one process; it joins two");
      }
      void* opened = nullptr;
      cuda_check(cudaIpcOpenMemHandle(&opened, theirs.memory, cudaIpcMemLazyEnablePeerAccess),
                 "cudaIpcOpenMemHandle of the peer's inbox");
      peer = static_cast<std::byte*>(opened);
    });
  }

  void leave() override {
    const uint32_t left = 1;
    cudaMemcpy(peer, &left, sizeof(left), cudaMemcpyHostToDevice);
  }

 private:
  DeviceMemory memory_;
};

class HostInboxes final : public Inboxes {
 public:
  ~HostInboxes() override {
    if (registered_) cudaHostUnregister(memory_);
    if (memory_ != MAP_FAILED) ::munmap(memory_, 2 * kWholeInbox);
    if (file_ >= 0) ::close(file_);
  }

  void open(Communicator& host, Device& device) override {
    struct Name {
      char path[64];
    } name{};
    in_step(host, [&] {
      if (host.rank() != 0) return;
      file_ = ::memfd_create("lockstep-inboxes", 0);
      if (file_ < 0 || ::ftruncate(file_, 2 * kWholeInbox) != 0) {
        fail("host mailbox: no memory file: {}", std::strerror(errno));
      }
      const std::string path = fmt::format("/proc/{}/fd/{}", ::getpid(), file_);
      std::memcpy(name.path, path.data(), path.size());
    });
    const std::string path = gathered(host, name)[0].path;
    in_step(host, [&] {
      device.make_current();
      map(path);
      cuda_check(cudaHostRegister(memory_, 2 * kWholeInbox,
                                  cudaHostRegisterMapped | cudaHostRegisterPortable),
                 "cudaHostRegister of the host mailbox");
      registered_ = true;
      void* seen = nullptr;
      cuda_check(cudaHostGetDevicePointer(&seen, memory_, 0), "cudaHostGetDevicePointer");
      mine = static_cast<std::byte*>(seen) + host.rank() * kWholeInbox;
      peer = static_cast<std::byte*>(seen) + (1 - host.rank()) * kWholeInbox;
      peer_head_ = reinterpret_cast<cuda::InboxHead*>(static_cast<std::byte*>(memory_) +
                                                      (1 - host.rank()) * kWholeInbox);
    });
  }

  void leave() override { static_cast<volatile cuda::InboxHead*>(peer_head_)->left = 1; }

 private:
  void map(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) fail("host mailbox {}: {}", path, std::strerror(errno));
    memory_ = ::mmap(nullptr, 2 * kWholeInbox, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (memory_ == MAP_FAILED) fail("host mailbox {}: {}", path, std::strerror(errno));
  }

  int file_ = -1;
  void* memory_ = MAP_FAILED;
  bool registered_ = false;
  cuda::InboxHead* peer_head_ = nullptr;
};

// What the card writes for the host.
class Verdict {
 public:
  Verdict() {
    void* memory = nullptr;
    cuda_check(cudaHostAlloc(&memory, sizeof(cuda::ExchangeVerdict), cudaHostAllocMapped),
               "cudaHostAlloc");
    host_ = new (memory) cuda::ExchangeVerdict{};
    void* seen = nullptr;
    cuda_check(cudaHostGetDevicePointer(&seen, memory, 0), "cudaHostGetDevicePointer");
    card_ = static_cast<cuda::ExchangeVerdict*>(seen);
  }
  ~Verdict() { cudaFreeHost(host_); }
  Verdict(const Verdict&) = delete;
  Verdict& operator=(const Verdict&) = delete;

  cuda::ExchangeVerdict* on_card() const { return card_; }
  uint32_t exit_code() const {
    return static_cast<const volatile cuda::ExchangeVerdict*>(host_)->exit_code;
  }
  uint32_t operation() const {
    return static_cast<const volatile cuda::ExchangeVerdict*>(host_)->operation;
  }

 private:
  cuda::ExchangeVerdict* host_ = nullptr;
  cuda::ExchangeVerdict* card_ = nullptr;
};

class CardMailbox final : public DeviceCommunicator {
 public:
  CardMailbox(const char* name, Communicator& host, Device& device,
              std::unique_ptr<Inboxes> inboxes)
      : name_(name), device_(device), inboxes_(std::move(inboxes)) {
    in_step(host, [&] {
      device.make_current();
      verdict_ = std::make_unique<Verdict>();
      state_ = DeviceMemory(device, sizeof(cuda::ExchangeState));
      cuda_check(cudaMemset(state_.data(), 0, sizeof(cuda::ExchangeState)), "cudaMemset");
      cuda_check(cudaDeviceSynchronize(), "cudaMemset");
    });
    common_.rank = host.rank();
    common_.inbox = inboxes_->mine;
    common_.peer = inboxes_->peer;
    common_.state = reinterpret_cast<cuda::ExchangeState*>(state_.data());
    common_.verdict = verdict_->on_card();
  }

  ~CardMailbox() override {
    device_.make_current();
    inboxes_->leave();
  }

  std::string_view name() const override { return name_; }
  bool capturable() const override { return true; }
  void set_deadline(std::chrono::milliseconds deadline) override { deadline_ = deadline; }

  void all_reduce(void* data, int64_t n, Rounding exchange_type, Stream& stream) override {
    const bool bf16 = exchange_type == Rounding::bf16;
    const int64_t n_bytes = n * (bf16 ? 2 : 4);
    for (int64_t done = 0; done < n_bytes; done += cuda::kExchangeBytes) {
      ExchangeArgs args = next(bf16 ? ExchangeKind::sum_bf16 : ExchangeKind::sum_fp32);
      args.data = static_cast<std::byte*>(data) + done;
      args.n_bytes = std::min(cuda::kExchangeBytes, n_bytes - done);
      cuda::launch_exchange(args, static_cast<cudaStream_t>(stream.native()));
    }
  }

  void all_gather(const void* in, int64_t n_bytes, void* out, Stream& stream) override {
    LOCKSTEP_CHECK(n_bytes % 4 == 0);
    for (int64_t done = 0; done < n_bytes; done += cuda::kExchangeBytes) {
      ExchangeArgs args = next(ExchangeKind::gather);
      args.data = const_cast<std::byte*>(static_cast<const std::byte*>(in)) + done;
      args.out = static_cast<std::byte*>(out) + done;
      args.stride = n_bytes;
      args.n_bytes = std::min(cuda::kExchangeBytes, n_bytes - done);
      cuda::launch_exchange(args, static_cast<cudaStream_t>(stream.native()));
    }
  }

  void synchronize(Stream& stream) override {
    stream.synchronize();
    const int me = common_.rank;
    const uint32_t code = verdict_->exit_code();
    if (code == static_cast<uint32_t>(ExitCode::peer_lost)) {
      fail_with(ExitCode::peer_lost, "rank {}: rank {} left during exchange {} of the {} transport",
                me, 1 - me, verdict_->operation(), name_);
    }
    if (code != 0) {
      fail_with(ExitCode::deadline,
                "rank {}: rank {} did not answer exchange {} of the {} transport within {} ms", me,
                1 - me, verdict_->operation(), name_, deadline_.count());
    }
  }

 private:
  ExchangeArgs next(ExchangeKind kind) const {
    ExchangeArgs args = common_;
    args.kind = kind;
    args.deadline_ns = static_cast<uint64_t>(deadline_.count()) * 1000000u;
    args.fault = planted_exchange_fault(name_, args.rank);
    return args;
  }

  const char* name_;
  Device& device_;
  std::unique_ptr<Inboxes> inboxes_;
  std::unique_ptr<Verdict> verdict_;
  DeviceMemory state_;
  ExchangeArgs common_{};
  std::chrono::milliseconds deadline_ = kTransportDeadline;
};

}  // namespace

std::unique_ptr<DeviceCommunicator> open_device_mailbox(Communicator& host, Device& device) {
  auto inboxes = std::make_unique<DeviceInboxes>();
  inboxes->open(host, device);
  return std::make_unique<CardMailbox>("device", host, device, std::move(inboxes));
}

std::unique_ptr<DeviceCommunicator> open_host_mailbox(Communicator& host, Device& device) {
  auto inboxes = std::make_unique<HostInboxes>();
  inboxes->open(host, device);
  return std::make_unique<CardMailbox>("host", host, device, std::move(inboxes));
}

}  // namespace lockstep
