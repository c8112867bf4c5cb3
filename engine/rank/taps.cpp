#include "engine/rank/taps.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/base/error.h"

namespace lockstep {

bool TapRequest::wants(const std::string& name) const {
  for (const std::string& pattern : names) {
    const bool prefix = !pattern.empty() && pattern.back() == '*';
    if (prefix ? name.compare(0, pattern.size() - 1, pattern, 0, pattern.size() - 1) == 0
               : name == pattern) {
      return true;
    }
  }
  return false;
}

bool TapRecorder::wants_states() const {
  const std::string state = "state/";
  return std::any_of(request_.names.begin(), request_.names.end(), [&](const std::string& name) {
    return name.starts_with(state) ||
           (name.ends_with('*') && state.starts_with(name.substr(0, name.size() - 1)));
  });
}

void TapRecorder::put_rows(const std::string& name, int64_t first_row, const float* rows,
                           int64_t n_rows, int64_t width) {
  Tap& tap = taps_[name];
  if (tap.shape.empty()) tap.shape = {0, width};
  LOCKSTEP_CHECK(tap.shape[1] == width);
  tap.shape[0] = std::max(tap.shape[0], first_row + n_rows);
  tap.values.resize(static_cast<size_t>(tap.shape[0] * width));
  std::copy_n(rows, n_rows * width, tap.values.begin() + first_row * width);
}

void TapRecorder::put_sharded(const std::string& name, const std::vector<int64_t>& shape,
                              const std::vector<float>& values, int64_t total,
                              const std::vector<IndexRange>& ranges) {
  std::string text = std::to_string(total) + ";";
  for (size_t i = 0; i < ranges.size(); ++i) {
    text += fmt::format("{}{}:{}", i == 0 ? "" : ",", ranges[i].begin, ranges[i].end);
  }
  taps_[name] = {shape, values, text};
}

void TapRecorder::write(const std::filesystem::path& path) const {
  SafetensorsWriter writer;
  for (const auto& [name, tap] : taps_) {
    writer.add(name, DType::F32, tap.shape, std::as_bytes(std::span(tap.values)));
    if (!tap.shard.empty()) writer.set_metadata("shard:" + name, tap.shard);
  }
  writer.write(path);
}

}  // namespace lockstep
