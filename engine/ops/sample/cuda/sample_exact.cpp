#include "engine/ops/sample/cuda/sample_exact.h"

#include <algorithm>
#include <numeric>

#include "engine/ops/common/exact_values.h"

namespace lockstep {
namespace {

constexpr int64_t kVocabulary = 5000;
constexpr int kRequests = 24;
constexpr int kPeaks = 12;

std::vector<float> host(uint64_t seed, bool listed) {
  const SampleExactProblem p(seed, listed);
  std::vector<int32_t> order(p.logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return p.logits[static_cast<size_t>(a)] > p.logits[static_cast<size_t>(b)];
  });
  std::vector<float> answer;
  for (const SampleExactRequest& r : p.requests) {
    const int32_t token =
        sample({p.logits.data(), kVocabulary, p.n_live, r.params, r.history, r.position});
    answer.push_back(static_cast<float>(token));
    answer.push_back(p.logits[static_cast<size_t>(token)]);
    for (size_t i = 0; i < kSampleExactTop; ++i) {
      answer.push_back(static_cast<float>(order[i]));
      answer.push_back(p.logits[static_cast<size_t>(order[i])]);
    }
  }
  return answer;
}

SamplingParams params_of(PhiloxStream& random, bool listed) {
  constexpr int32_t kTopK[] = {1, 5, 20, 64};
  SamplingParams params;
  params.temperature = 0.5f + random.next_uniform();
  if (listed) {
    params.top_k = kTopK[random.next_below(4)];
    if (random.next_below(4) == 0) params.temperature = 0.0f;
  }
  if (random.next_below(2) == 0) params.top_p = 0.5f + 0.5f * random.next_uniform();
  if (random.next_below(3) == 0) params.min_p = 0.1f * random.next_uniform();
  if (random.next_below(2) == 0) {
    params.presence_penalty = random.next_uniform();
    params.frequency_penalty = random.next_uniform();
    params.repetition_penalty = 1.0f + random.next_uniform();
  }
  if (random.next_below(3) == 0) {
    params.logit_bias[static_cast<int32_t>(random.next_below(kVocabulary))] = 20.0f;
  }
  params.seed = uint64_t{random.next_u32()} << 32 | random.next_u32();
  return params;
}

}  // namespace

SampleExactProblem::SampleExactProblem(uint64_t seed, bool listed) {
  PhiloxStream random(seed, listed ? 11 : 12);
  logits = exact_floats(random, kVocabulary, 1.0f, false);
  for (float& value : logits) value = round_to_bf16(12.0f * value * value * value);
  for (int i = 0; i < kPeaks; ++i) {
    logits[random.next_below(kVocabulary)] = round_to_bf16(10.0f + 6.0f * random.next_uniform());
  }
  for (int i = 0; i < kRequests; ++i) {
    SampleExactRequest request;
    request.params = params_of(random, listed);
    for (int n = 0; n < 40; ++n) {
      const auto id = static_cast<int32_t>(random.next_below(kVocabulary));
      ++(n % 2 == 0 ? request.history.prompt_counts : request.history.output_counts)[id];
    }
    request.position = random.next_below(1u << 18);
    requests.push_back(std::move(request));
  }
}

std::vector<ExactCase> sample_exact_cases() {
  return {{"greedy and top-k tokens", 70, [](uint64_t seed) { return host(seed, true); }},
          {"tokens out of all candidates", 70, [](uint64_t seed) { return host(seed, false); }}};
}

}  // namespace lockstep
