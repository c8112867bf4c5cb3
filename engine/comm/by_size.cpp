#include "engine/comm/by_size.h"

#include <utility>

namespace lockstep {
namespace {

class BySize final : public DeviceCommunicator {
 public:
  BySize(std::unique_ptr<DeviceCommunicator> small, std::unique_ptr<DeviceCommunicator> large,
         int64_t threshold_bytes)
      : small_(std::move(small)), large_(std::move(large)), threshold_bytes_(threshold_bytes) {
    set_deadline(kTransportDeadline);
  }

  std::string_view name() const override { return small_->name(); }
  bool capturable() const override { return small_->capturable() && large_->capturable(); }
  void set_deadline(std::chrono::milliseconds deadline) final {
    small_->set_deadline(deadline);
    large_->set_deadline(deadline +
                         std::chrono::seconds(1));  // so that the one that waits is named
  }

  void all_reduce(void* data, int64_t n, Rounding exchange_type, Stream& stream) override {
    const int64_t n_bytes = n * (exchange_type == Rounding::bf16 ? 2 : 4);
    of(n_bytes).all_reduce(data, n, exchange_type, stream);
  }
  void all_gather(const void* in, int64_t n_bytes, void* out, Stream& stream) override {
    of(n_bytes).all_gather(in, n_bytes, out, stream);
  }

  // The wait for the stream that can end early comes first: it looks after the other's kernels too.
  void synchronize(Stream& stream) override {
    large_->synchronize(stream);
    small_->synchronize(stream);
  }

 private:
  DeviceCommunicator& of(int64_t n_bytes) { return n_bytes > threshold_bytes_ ? *large_ : *small_; }

  std::unique_ptr<DeviceCommunicator> small_;
  std::unique_ptr<DeviceCommunicator> large_;
  int64_t threshold_bytes_;
};

}  // namespace

std::unique_ptr<DeviceCommunicator> by_message_size(std::unique_ptr<DeviceCommunicator> small,
                                                    std::unique_ptr<DeviceCommunicator> large,
                                                    int64_t threshold_bytes) {
  return std::make_unique<BySize>(std::move(small), std::move(large), threshold_bytes);
}

}  // namespace lockstep
