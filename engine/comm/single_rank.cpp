#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "engine/comm/communicator.h"

namespace lockstep {
namespace {

class SingleRank final : public Communicator {
 public:
  int rank() const override { return 0; }
  int n_ranks() const override { return 1; }
  void all_reduce(float*, int64_t, Rounding) override {}
  void all_gather(const float* in, int64_t n, float* out) override { std::copy_n(in, n, out); }
  void all_gather_bytes(std::span<const std::byte> in, std::span<std::byte> out) override {
    std::copy(in.begin(), in.end(), out.begin());
  }

  void wait_for_work(std::chrono::milliseconds limit) override {
    std::unique_lock lock(mutex_);
    woken_.wait_for(lock, limit, [this] { return rung_; });
    rung_ = false;
  }
  bool peer_has_begun() override { return false; }
  void wake() override {
    const std::lock_guard lock(mutex_);
    rung_ = true;
    woken_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable woken_;
  bool rung_ = false;
};

}  // namespace

std::unique_ptr<Communicator> make_single_rank_communicator() {
  return std::make_unique<SingleRank>();
}

}  // namespace lockstep
