#include <vector>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/comm/device_communicator.h"

namespace lockstep {
namespace {

// Every call begins with a wait for the stream, so that a copy to the device has left its buffer
// before the next call writes there.
class StagedCommunicator final : public DeviceCommunicator {
 public:
  explicit StagedCommunicator(Communicator& host) : host_(host) {}

  std::string_view name() const override { return "mailbox"; }
  bool capturable() const override { return false; }

  void all_reduce(void* data, int64_t n, Rounding exchange_type, Stream& stream) override {
    values_.resize(static_cast<size_t>(n));
    if (exchange_type == Rounding::none) {
      stream.copy_out(values_.data(), data, n * 4);
      stream.synchronize();
      host_.all_reduce(values_.data(), n, exchange_type);
      stream.copy_in(data, values_.data(), n * 4);
      return;
    }
    codes_.resize(values_.size());
    stream.copy_out(codes_.data(), data, n * 2);
    stream.synchronize();
    for (size_t i = 0; i < codes_.size(); ++i) values_[i] = bf16_to_float(codes_[i]);
    host_.all_reduce(values_.data(), n, exchange_type);
    for (size_t i = 0; i < codes_.size(); ++i) codes_[i] = float_to_bf16(values_[i]);
    stream.copy_in(data, codes_.data(), n * 2);
  }

  void all_gather(const void* in, int64_t n_bytes, void* out, Stream& stream) override {
    LOCKSTEP_CHECK(n_bytes % 4 == 0);
    mine_.resize(static_cast<size_t>(n_bytes));
    all_.resize(mine_.size() * static_cast<size_t>(host_.n_ranks()));
    stream.copy_out(mine_.data(), in, n_bytes);
    stream.synchronize();
    host_.all_gather_bytes(mine_, all_);
    stream.copy_in(out, all_.data(), static_cast<int64_t>(all_.size()));
  }

  void synchronize(Stream& stream) override { stream.synchronize(); }

 private:
  Communicator& host_;
  std::vector<float> values_;
  std::vector<uint16_t> codes_;
  std::vector<std::byte> mine_;
  std::vector<std::byte> all_;
};

}  // namespace

std::unique_ptr<DeviceCommunicator> make_staged_communicator(Communicator& host) {
  return std::make_unique<StagedCommunicator>(host);
}

}  // namespace lockstep
