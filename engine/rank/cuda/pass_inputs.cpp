#include "engine/rank/cuda/pass_inputs.h"

#include <cstring>

#include "engine/base/error.h"
#include "engine/rank/cuda/card_model.h"

namespace lockstep {

int64_t InputSender::most_bytes(const PassLimits& limits) {
  const auto column = static_cast<int64_t>(sizeof(int32_t) + sizeof(RopePosition));
  const auto span = static_cast<int64_t>(sizeof(int32_t) + sizeof(GdnSpan));
  return limits.n_columns * column + limits.n_slots * span;
}

PassInputs InputSender::send(const Batch& batch, std::span<const GdnSpan> rounds, std::byte* device,
                             Stream& stream) {
  std::vector<int32_t> firsts;
  for (const Span& span : batch.spans) firsts.push_back(static_cast<int32_t>(span.first_position));
  int64_t end = 0;
  const auto add = [&](const auto& values) {
    const int64_t at = end;
    const auto bytes = std::as_bytes(std::span(values));
    end += static_cast<int64_t>(bytes.size());
    LOCKSTEP_CHECK(end <= host_.size());
    if (!bytes.empty()) std::memcpy(host_.data() + at, bytes.data(), bytes.size());
    return device + at;
  };
  PassInputs inputs;
  inputs.ids = reinterpret_cast<const int32_t*>(add(batch.ids));
  inputs.positions = reinterpret_cast<const RopePosition*>(add(batch.positions));
  inputs.first_positions = reinterpret_cast<const int32_t*>(add(firsts));
  inputs.rounds = reinterpret_cast<const GdnSpan*>(add(rounds));
  stream.copy_in(device, host_.data(), end);
  return inputs;
}

}  // namespace lockstep
