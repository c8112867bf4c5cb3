// Op         Chooses the next token of one sequence from its logits.
// Math       l = logits, dead rows at -inf
//            repetition:  l[i] = l[i] > 0 ? l[i] / r : l[i] * r   for i in prompt or output
//            l[i] -= presence * (count_out[i] > 0) + frequency * count_out[i];  l[i] += bias[i]
//            temperature 0: argmax, lowest id on ties.
//            else: p = softmax(l / temperature) over the rows that survive, in this order:
//              min_p: p[i] >= min_p * max p;  top_k: the k largest (lower id first on ties);
//              top_p: the shortest prefix of the descending order whose mass reaches top_p.
//            The token is the first of the descending order (ties: lower id) whose cumulative mass
//            exceeds u * total, u = Philox4x32-10(key = seed, counter = position), 53 bits.
//            Nothing else enters: no slot, no round, no speculation depth.
// Shapes     logits [n_vocab]; only the first n_live rows can be chosen.
// Dtypes     float32 logits; penalties in float32; softmax in float64 with the engine's own exp.
// Errors     NaN among the live logits returns -1: the caller must stop.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

namespace lockstep {

struct SamplingParams {
  float temperature = 0.0f;  // 0: greedy
  int32_t top_k = 0;         // 0: off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  float repetition_penalty = 1.0f;
  std::map<int32_t, float> logit_bias;
  uint64_t seed = 0;

  bool has_penalties() const {
    return presence_penalty != 0.0f || frequency_penalty != 0.0f || repetition_penalty != 1.0f;
  }
};

// Tokens that penalties look at.
struct TokenHistory {
  std::unordered_map<int32_t, int32_t> prompt_counts;
  std::unordered_map<int32_t, int32_t> output_counts;
};

struct SampleArgs {
  const float* logits;
  int64_t n_vocab;
  int64_t n_live;
  const SamplingParams& params;
  const TokenHistory& history;
  int64_t position;  // absolute position of the token that is chosen
};

int32_t sample(const SampleArgs& args);

// The probabilities that `sample` draws from, in its order: for tests and log-probabilities.
struct Candidate {
  int32_t id;
  double mass;  // unnormalised
};
std::vector<Candidate> sampling_candidates(const SampleArgs& args);

}  // namespace lockstep
