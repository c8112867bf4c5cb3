#include "validation/gate/run_digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/base/digest.h"

namespace lockstep {
namespace {

template <typename T>
void update(Digest128& digest, const std::vector<T>& values) {
  const uint64_t n = values.size();
  digest.update(std::as_bytes(std::span(&n, 1)));
  digest.update(std::as_bytes(std::span(values)));
}

void update(Digest128& digest, const EngineResult& result) {
  digest.update(result.name + "\n");
  update(digest, result.ids);
  for (const StepLogits& step : result.logits) {
    update(digest, step.ids);
    update(digest, step.values);
    digest.update(std::as_bytes(std::span(&step.log_sum_exp, 1)));
  }
  for (const auto& [tap, tensor] : result.dump.taps) {
    digest.update(tap + "\n");
    update(digest, tensor.shape);
    update(digest, tensor.values);
  }
}

// Bytes, not values: NaN equals itself here and the two zeros differ.
template <typename T>
bool same_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

bool same_logits(const StepLogits& a, const StepLogits& b) {
  return a.ids == b.ids && same_bytes(a.values, b.values) &&
         std::memcmp(&a.log_sum_exp, &b.log_sum_exp, sizeof a.log_sum_exp) == 0;
}

bool same_tensor(const FloatTensor& a, const FloatTensor& b) {
  return a.shape == b.shape && same_bytes(a.values, b.values);
}

std::string first_tap_difference(const TapMap& a, const TapMap& b) {
  TapMap all = a;
  all.insert(b.begin(), b.end());
  for (const auto& [tap, unused] : all) {
    const auto in_a = a.find(tap);
    const auto in_b = b.find(tap);
    const bool same = in_a != a.end() && in_b != b.end() && same_tensor(in_a->second, in_b->second);
    if (!same) return tap;
  }
  return {};
}

std::string first_result_difference(const EngineResult& a, const EngineResult& b) {
  const std::string tap = first_tap_difference(a.dump.taps, b.dump.taps);
  if (!tap.empty()) return tap;
  for (size_t i = 0; i < std::max(a.ids.size(), b.ids.size()); ++i) {
    const bool both = i < a.ids.size() && i < b.ids.size();
    if (!both || a.ids[i] != b.ids[i]) return fmt::format("token {}", i);
    if (!same_logits(a.logits[i], b.logits[i])) return fmt::format("logits of token {}", i);
  }
  return {};
}

const EngineResult* find_result(const std::vector<EngineResult>& results, const std::string& name) {
  const auto at = std::find_if(results.begin(), results.end(),
                               [&](const EngineResult& result) { return result.name == name; });
  return at == results.end() ? nullptr : &*at;
}

}  // namespace

std::string run_digest(const std::vector<EngineResult>& results) {
  Digest128 digest;
  for (const EngineResult& result : results) update(digest, result);
  return digest.hex();
}

std::string first_difference(const std::vector<EngineResult>& a,
                             const std::vector<EngineResult>& b) {
  for (const EngineResult& result : a) {
    const EngineResult* other = find_result(b, result.name);
    if (other == nullptr) return result.name + ": only in the first run";
    const std::string difference = first_result_difference(result, *other);
    if (!difference.empty()) return result.name + ": " + difference;
  }
  for (const EngineResult& result : b) {
    if (find_result(a, result.name) == nullptr) return result.name + ": only in the second run";
  }
  return {};
}

std::vector<EngineResult> first_tokens(std::vector<EngineResult> results, size_t n) {
  for (EngineResult& result : results) {
    result.ids.resize(std::min(n, result.ids.size()));
    result.logits.resize(std::min(n, result.logits.size()));
  }
  return results;
}

}  // namespace lockstep
