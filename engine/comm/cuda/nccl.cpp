#include "engine/comm/cuda/nccl.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/comm/steps.h"
#include "engine/device/cuda/cuda_check.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// NCCL's types and numbers, the same since version 2.10.
struct NcclId {
  char bytes[128];
};
using NcclComm = void*;
constexpr int kInt8 = 0;
constexpr int kFloat32 = 7;
constexpr int kBfloat16 = 9;
constexpr int kSum = 0;
constexpr int kInProgress = 7;

class NcclLibrary {
 public:
  NcclLibrary() {
    // NVLink multicast changes the state of switches that other users of the host share.
    ::setenv("NCCL_NVLS_ENABLE", "0", 1);
    const char* chosen = std::getenv("LOCKSTEP_NCCL");
    std::vector<std::string> names = {"libnccl.so.2", "libnccl.so"};
    if (chosen != nullptr) names = {chosen};
    for (const std::string& name : names) {
      library_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library_ != nullptr) break;
    }
    if (library_ == nullptr) {
      fail("no NCCL: {}; LOCKSTEP_NCCL may name the library", ::dlerror());
    }
    find("ncclGetErrorString", error_string);
    find("ncclGetUniqueId", get_unique_id);
    find("ncclCommInitRank", init_rank);
    find("ncclCommAbort", abort);
    find("ncclCommGetAsyncError", async_error);
    find("ncclAllReduce", all_reduce);
    find("ncclAllGather", all_gather);
  }

  void check(int code, const char* what) const {
    if (code != 0) fail_with(ExitCode::device_error, "{}: {}", what, error_string(code));
  }

  const char* (*error_string)(int) = nullptr;
  int (*get_unique_id)(NcclId*) = nullptr;
  int (*init_rank)(NcclComm*, int, NcclId, int) = nullptr;
  int (*abort)(NcclComm) = nullptr;
  int (*async_error)(NcclComm, int*) = nullptr;
  int (*all_reduce)(const void*, void*, size_t, int, int, NcclComm, cudaStream_t) = nullptr;
  int (*all_gather)(const void*, void*, size_t, int, NcclComm, cudaStream_t) = nullptr;

 private:
  // The library stays open: it has threads and exit handlers of its own.
  template <typename Function>
  void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library_, name));
    if (function == nullptr) fail("NCCL: the library has no {}", name);
  }

  void* library_ = nullptr;
};

class Nccl final : public DeviceCommunicator {
 public:
  Nccl(Communicator& host, Device& device) : device_(device), rank_(host.rank()) {
    const int n_ranks = host.n_ranks();
    in_step(host, [&] { library_ = std::make_unique<NcclLibrary>(); });
    refuse_shared_card(host);
    std::vector<NcclId> ids(static_cast<size_t>(n_ranks));
    NcclId mine{};
    in_step(host, [&] {
      if (rank_ == 0) library_->check(library_->get_unique_id(&mine), "ncclGetUniqueId");
    });
    host.all_gather_bytes(std::as_bytes(std::span(&mine, 1)),
                          std::as_writable_bytes(std::span(ids)));
    in_step(host, [&] {
      device.make_current();
      library_->check(library_->init_rank(&comm_, n_ranks, ids[0], rank_), "ncclCommInitRank");
    });
  }

  // ncclCommDestroy would wait for a peer that has gone.
  ~Nccl() override {
    device_.make_current();
    end();
  }

  std::string_view name() const override { return "nccl"; }
  bool capturable() const override { return true; }
  void set_deadline(std::chrono::milliseconds deadline) override { deadline_ = deadline; }

  void all_reduce(void* data, int64_t n, Rounding exchange_type, Stream& stream) override {
    const int type = exchange_type == Rounding::bf16 ? kBfloat16 : kFloat32;
    library_->check(library_->all_reduce(data, data, static_cast<size_t>(n), type, kSum, comm_,
                                         static_cast<cudaStream_t>(stream.native())),
                    "ncclAllReduce");
  }

  void all_gather(const void* in, int64_t n_bytes, void* out, Stream& stream) override {
    library_->check(library_->all_gather(in, out, static_cast<size_t>(n_bytes), kInt8, comm_,
                                         static_cast<cudaStream_t>(stream.native())),
                    "ncclAllGather");
  }

  // NCCL's kernels wait for ever: the host looks at the clock for them.
  void synchronize(Stream& stream) override {
    const auto late = Clock::now() + deadline_;
    const auto native = static_cast<cudaStream_t>(stream.native());
    for (;;) {
      const cudaError_t state = cudaStreamQuery(native);
      if (state == cudaSuccess) return;
      if (state != cudaErrorNotReady) cuda_check(state, "a stream with NCCL's work");
      int code = 0;
      library_->check(library_->async_error(comm_, &code), "ncclCommGetAsyncError");
      if (code != 0 && code != kInProgress) {
        end();
        fail_with(ExitCode::peer_lost, "rank {}: rank {} left during an exchange of NCCL: {}",
                  rank_, 1 - rank_, library_->error_string(code));
      }
      if (Clock::now() > late) {
        end();
        fail_with(ExitCode::deadline, "rank {}: rank {} did not answer NCCL within {} ms", rank_,
                  1 - rank_, deadline_.count());
      }
      std::this_thread::yield();
    }
  }

 private:
  // Ranks on one card would wait for each other in ncclCommInitRank.
  void refuse_shared_card(Communicator& host) {
    struct Card {
      char uuid[48];
    } mine{};
    const std::string& uuid = device_.facts().uuid;
    uuid.copy(mine.uuid, sizeof(mine.uuid) - 1);
    std::vector<Card> all(static_cast<size_t>(host.n_ranks()));
    host.all_gather_bytes(std::as_bytes(std::span(&mine, 1)),
                          std::as_writable_bytes(std::span(all)));
    for (const Card& other : all) {
      if (&other != &all[static_cast<size_t>(rank_)] && uuid == other.uuid) {
        fail("NCCL wants a card for each rank; both have {}", uuid);
      }
    }
  }

  // Its kernels end when the communicator is aborted.
  void end() {
    if (comm_ != nullptr) library_->abort(comm_);
    comm_ = nullptr;
  }

  Device& device_;
  int rank_;
  std::unique_ptr<NcclLibrary> library_;
  NcclComm comm_ = nullptr;
  std::chrono::milliseconds deadline_ = kTransportDeadline;
};

}  // namespace

std::unique_ptr<DeviceCommunicator> open_nccl(Communicator& host, Device& device) {
  return std::make_unique<Nccl>(host, device);
}

}  // namespace lockstep
