#include <utility>

#include "engine/comm/device_communicator.h"

namespace lockstep {
namespace {

class WatchedStream final : public Stream {
 public:
  WatchedStream(std::unique_ptr<Stream> stream, DeviceCommunicator& transport)
      : stream_(std::move(stream)), transport_(transport) {}

  void copy_in(void* to, const void* from, int64_t bytes) override {
    stream_->copy_in(to, from, bytes);
  }
  void copy_out(void* to, const void* from, int64_t bytes) override {
    stream_->copy_out(to, from, bytes);
  }
  void copy_within(void* to, const void* from, int64_t bytes) override {
    stream_->copy_within(to, from, bytes);
  }
  void fill(void* device, uint8_t byte, int64_t bytes) override {
    stream_->fill(device, byte, bytes);
  }
  void synchronize() override { transport_.synchronize(*stream_); }
  void* native() const override { return stream_->native(); }

 private:
  std::unique_ptr<Stream> stream_;
  DeviceCommunicator& transport_;
};

}  // namespace

std::unique_ptr<Stream> watched_stream(std::unique_ptr<Stream> stream,
                                       DeviceCommunicator* transport) {
  if (transport == nullptr) return stream;
  return std::make_unique<WatchedStream>(std::move(stream), *transport);
}

}  // namespace lockstep
