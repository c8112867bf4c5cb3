// Activations between a card, where they are bfloat16, and the host, where they are float32.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/device/device.h"

namespace lockstep {

class HostRows {
 public:
  explicit HostRows(Stream& stream) : stream_(stream) {}

  // Waits for the stream; the values stay until the next call.
  const float* read(const uint16_t* device, int64_t n);
  // Rounds to bfloat16. `values` may change once the call returns; the copy is in order with the
  // stream's work.
  void write(const float* values, int64_t n, uint16_t* device);

 private:
  Stream& stream_;
  std::vector<uint16_t> codes_;
  std::vector<float> values_;
};

}  // namespace lockstep
