#include "engine/rank/cuda/pass_inputs.h"

#include <cstring>

#include "engine/rank/cuda/card_model.h"

namespace lockstep {
namespace {

// Appends values; returns where they start.
template <typename T>
size_t append(std::vector<std::byte>& bytes, std::span<const T> values) {
  const size_t at = bytes.size();
  bytes.resize(at + values.size_bytes());
  if (!values.empty()) std::memcpy(bytes.data() + at, values.data(), values.size_bytes());
  return at;
}

}  // namespace

int64_t PassInputs::most_bytes(const PassLimits& limits) {
  const auto column = static_cast<int64_t>(sizeof(int32_t) + sizeof(RopePosition));
  const auto span = static_cast<int64_t>(sizeof(int32_t) + sizeof(GdnSpan));
  return limits.n_columns * column + limits.n_slots * span;
}

void PassInputs::send(const Batch& batch, std::span<const GdnSpan> rounds, std::byte* device,
                      Stream& stream) {
  std::vector<int32_t> firsts;
  for (const Span& span : batch.spans) firsts.push_back(static_cast<int32_t>(span.first_position));
  host_.clear();
  append(host_, std::span(batch.ids));
  positions_at_ = append(host_, std::span(batch.positions));
  firsts_at_ = append(host_, std::span<const int32_t>(firsts));
  rounds_at_ = append(host_, rounds);
  device_ = device;
  stream.copy_in(device, host_.data(), static_cast<int64_t>(host_.size()));
}

}  // namespace lockstep
