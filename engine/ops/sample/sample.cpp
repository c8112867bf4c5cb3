#include "engine/ops/sample/sample.h"

#include <algorithm>
#include <limits>
#include <span>

#include "engine/base/math.h"
#include "engine/base/philox.h"
#include "engine/ops/argmax/argmax.h"

namespace lockstep {
namespace {

void apply_penalties(const SampleArgs& args, std::vector<float>& logits) {
  const SamplingParams& params = args.params;
  const auto live = [&](int32_t id) { return id >= 0 && id < args.n_live; };
  if (params.repetition_penalty != 1.0f) {
    const auto repeat = [&](int32_t id) {
      float& logit = logits[static_cast<size_t>(id)];
      logit = logit > 0.0f ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    };
    for (const auto& [id, count] : args.history.prompt_counts) {
      if (live(id)) repeat(id);
    }
    for (const auto& [id, count] : args.history.output_counts) {
      if (live(id) && args.history.prompt_counts.count(id) == 0) repeat(id);
    }
  }
  for (const auto& [id, count] : args.history.output_counts) {
    if (!live(id) || count == 0) continue;
    logits[static_cast<size_t>(id)] -=
        params.presence_penalty + params.frequency_penalty * static_cast<float>(count);
  }
}

// The live logits after penalties and bias.
std::vector<float> adjusted_logits(const SampleArgs& args) {
  std::vector<float> logits(args.logits, args.logits + args.n_live);
  if (args.params.has_penalties()) apply_penalties(args, logits);
  for (const auto& [id, bias] : args.params.logit_bias) {
    if (id >= 0 && id < args.n_live) logits[static_cast<size_t>(id)] += bias;
  }
  return logits;
}

bool heavier(const Candidate& a, const Candidate& b) {
  return a.mass != b.mass ? a.mass > b.mass : a.id < b.id;
}

// Keeps the `count` heaviest, sorted.
void keep_heaviest(std::vector<Candidate>& candidates, size_t count) {
  count = std::min(count, candidates.size());
  const auto middle = candidates.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(candidates.begin(), middle, candidates.end(), heavier);
  candidates.resize(count);
}

void keep_top_p(std::vector<Candidate>& candidates, double top_p) {
  double total = 0.0;
  for (const Candidate& candidate : candidates) total += candidate.mass;
  double sum = 0.0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    sum += candidates[i].mass;
    if (sum >= top_p * total) {
      candidates.resize(i + 1);
      return;
    }
  }
}

std::vector<Candidate> candidates_of(const SamplingParams& params,
                                     const std::vector<float>& logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  // exp(-745) is the last positive float64: smaller ones have no mass, and a large min_p cuts
  // earlier.
  const double cut = params.min_p > 0.0f ? log_f64(params.min_p) : -745.0;
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double x = (double{logits[i]} - double{largest}) / double{params.temperature};
    if (x >= cut) candidates.push_back({static_cast<int32_t>(i), exp_f64(x)});
  }
  keep_heaviest(candidates,
                params.top_k > 0 ? static_cast<size_t>(params.top_k) : candidates.size());
  if (params.top_p < 1.0f) keep_top_p(candidates, params.top_p);
  return candidates;
}

double uniform_at(uint64_t seed, int64_t position) {
  const auto at = static_cast<uint64_t>(position);
  const PhiloxCounter bits =
      philox4x32({static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), 0, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t wide = (uint64_t{bits[0]} << 21) ^ (bits[1] >> 11);  // 53 bits
  return static_cast<double>(wide) * 0x1p-53;
}

}  // namespace

std::vector<Candidate> sampling_candidates(const SampleArgs& args) {
  return candidates_of(args.params, adjusted_logits(args));
}

int32_t sample(const SampleArgs& args) {
  if (argmax(args.logits, args.n_live) < 0) return -1;
  const std::vector<float> logits = adjusted_logits(args);
  if (args.params.temperature == 0.0f) {
    return static_cast<int32_t>(argmax(logits.data(), static_cast<int64_t>(logits.size())));
  }
  const std::vector<Candidate> candidates = candidates_of(args.params, logits);
  double total = 0.0;
  for (const Candidate& candidate : candidates) total += candidate.mass;
  const double target = uniform_at(args.params.seed, args.position) * total;
  double sum = 0.0;
  for (const Candidate& candidate : candidates) {
    sum += candidate.mass;
    if (sum > target) return candidate.id;
  }
  return candidates.back().id;
}

}  // namespace lockstep
