// What a pass reads beside activations and weights, brought to the card in one copy: token ids,
// rope positions, where each span starts, and what the GDN ops do with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/device/device.h"
#include "engine/ops/common/cuda/gdn_round.h"
#include "engine/rank/batch.h"

namespace lockstep {

struct PassLimits;

class PassInputs {
 public:
  // Bytes on the card for any pass within the limits.
  static int64_t most_bytes(const PassLimits& limits);

  // Sends them to `device`; they stay on the host until the stream has been synchronised. `rounds`
  // has an entry a span, or none in a pass without GDN layers.
  void send(const Batch& batch, std::span<const GdnSpan> rounds, std::byte* device, Stream& stream);

  const int32_t* ids() const { return reinterpret_cast<const int32_t*>(device_); }
  const RopePosition* positions() const {
    return reinterpret_cast<const RopePosition*>(device_ + positions_at_);
  }
  const int32_t* first_position(size_t span) const {
    return reinterpret_cast<const int32_t*>(device_ + firsts_at_) + span;
  }
  const GdnSpan* rounds() const { return reinterpret_cast<const GdnSpan*>(device_ + rounds_at_); }

 private:
  std::vector<std::byte> host_;
  std::byte* device_ = nullptr;
  size_t positions_at_ = 0;
  size_t firsts_at_ = 0;
  size_t rounds_at_ = 0;
};

}  // namespace lockstep
