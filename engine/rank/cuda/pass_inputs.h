// What a pass reads beside activations and weights, brought to the card in one copy: token ids,
// rope positions, where each span starts, and what the GDN ops do with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/device/cuda/pinned_memory.h"
#include "engine/device/device.h"
#include "engine/ops/common/cuda/gdn_round.h"
#include "engine/rank/batch.h"

namespace lockstep {

struct PassLimits;

// On the card.
struct PassInputs {
  const int32_t* ids = nullptr;              // [n_columns]
  const RopePosition* positions = nullptr;   // [n_columns]
  const int32_t* first_positions = nullptr;  // [n_spans]
  const GdnSpan* rounds = nullptr;           // [n_spans]
};

class InputSender {
 public:
  explicit InputSender(const PassLimits& limits) : host_(most_bytes(limits)) {}

  // Bytes on the card for any pass within the limits.
  static int64_t most_bytes(const PassLimits& limits);

  // Sends them to `device`; the stream must be synchronised before the next call. Where they lie
  // depends on the numbers of columns and spans alone. `rounds` has an entry a span, or none in a
  // pass without GDN layers.
  PassInputs send(const Batch& batch, std::span<const GdnSpan> rounds, std::byte* device,
                  Stream& stream);

 private:
  PinnedMemory host_;
};

}  // namespace lockstep
