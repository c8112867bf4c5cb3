// The sampler against its own softmax, its filters by hand-made cases, and its counters.
#include "engine/ops/sample/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/philox.h"

namespace lockstep {
namespace {

constexpr int64_t kVocab = 64;

std::vector<float> test_logits(uint64_t seed) {
  PhiloxStream random(seed);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = 6.0f * random.next_uniform() - 3.0f;
  return logits;
}

int32_t draw(const std::vector<float>& logits, const SamplingParams& params, int64_t position,
             const TokenHistory& history = {}) {
  return sample({logits.data(), kVocab, kVocab, params, history, position});
}

// Largest value that chi-square with n - 1 degrees of freedom passes in 999,999 of 1,000,000 runs, by
// the Wilson-Hilferty cube approximation (z = 4.753).
double chi_square_limit(int n_cells) {
  const double k = n_cells - 1;
  const double t = 1.0 - 2.0 / (9.0 * k) + 4.753 * std::sqrt(2.0 / (9.0 * k));
  return k * t * t * t;
}

double chi_square(const std::vector<float>& logits, const SamplingParams& params, int n_draws) {
  const TokenHistory none;
  const auto candidates =
      sampling_candidates({logits.data(), kVocab, kVocab, params, none, 0});
  double total = 0.0;
  for (const Candidate& candidate : candidates) total += candidate.mass;
  std::vector<int> counts(kVocab);
  for (int i = 0; i < n_draws; ++i) ++counts[static_cast<size_t>(draw(logits, params, i))];
  double statistic = 0.0;
  int n_counted = 0;
  for (const Candidate& candidate : candidates) {
    const double expected = n_draws * candidate.mass / total;
    const double difference = counts[static_cast<size_t>(candidate.id)] - expected;
    statistic += difference * difference / expected;
    n_counted += counts[static_cast<size_t>(candidate.id)];
  }
  EXPECT_EQ(n_counted, n_draws) << "a filtered token was drawn";
  return statistic;
}

TEST(Sample, PlainSamplerMatchesItsSoftmax) {
  const auto logits = test_logits(1);
  SamplingParams params;
  params.temperature = 1.0f;
  params.seed = 42;
  EXPECT_LT(chi_square(logits, params, 100'000), chi_square_limit(kVocab));
  // The same draws against another temperature's softmax must be refused: the test can fail.
  std::vector<int> counts(kVocab);
  for (int i = 0; i < 100'000; ++i) ++counts[static_cast<size_t>(draw(logits, params, i))];
  params.temperature = 1.05f;
  const TokenHistory none;
  double total = 0.0;
  const auto wrong = sampling_candidates({logits.data(), kVocab, kVocab, params, none, 0});
  for (const Candidate& candidate : wrong) total += candidate.mass;
  double statistic = 0.0;
  for (const Candidate& candidate : wrong) {
    const double expected = 100'000 * candidate.mass / total;
    const double difference = counts[static_cast<size_t>(candidate.id)] - expected;
    statistic += difference * difference / expected;
  }
  EXPECT_GT(statistic, chi_square_limit(kVocab));
}

TEST(Sample, FilteredSamplerMatchesItsSoftmax) {
  const auto logits = test_logits(2);
  SamplingParams params;
  params.temperature = 0.8f;
  params.top_k = 20;
  params.top_p = 0.9f;
  params.seed = 7;
  EXPECT_LT(chi_square(logits, params, 100'000), chi_square_limit(20));
}

TEST(Sample, GreedyTakesTheLowestIdOnTies) {
  std::vector<float> logits(kVocab, 1.0f);
  logits[40] = logits[17] = 5.0f;
  EXPECT_EQ(draw(logits, {}, 0), 17);
}

TEST(Sample, TopKKeepsTheLowerIdOnTies) {
  std::vector<float> logits(kVocab, 0.0f);
  SamplingParams params;
  params.temperature = 1.0f;
  params.top_k = 3;
  for (int64_t position = 0; position < 200; ++position) EXPECT_LT(draw(logits, params, position), 3);
}

TEST(Sample, TopPKeepsTheShortestPrefixThatReachesIt) {
  std::vector<float> logits(kVocab, -100.0f);
  for (size_t i = 0; i < 3; ++i) logits[i] = std::log(std::vector<float>{0.5f, 0.3f, 0.2f}[i]);
  SamplingParams params;
  params.temperature = 1.0f;
  const TokenHistory none;
  const auto n_kept = [&](float top_p) {
    params.top_p = top_p;
    return sampling_candidates({logits.data(), kVocab, kVocab, params, none, 0}).size();
  };
  EXPECT_EQ(n_kept(0.0f), 1u);
  EXPECT_EQ(n_kept(0.49f), 1u);
  EXPECT_EQ(n_kept(0.51f), 2u);
  EXPECT_EQ(n_kept(0.79f), 2u);
  EXPECT_EQ(n_kept(0.81f), 3u);
}

TEST(Sample, MinPCutsBelowTheShareOfTheLargest) {
  std::vector<float> logits(kVocab, -100.0f);
  logits[3] = 0.0f;
  logits[5] = std::log(0.25f);
  logits[9] = std::log(0.05f);
  SamplingParams params;
  params.temperature = 1.0f;
  params.min_p = 0.2f;
  const TokenHistory none;
  EXPECT_EQ(sampling_candidates({logits.data(), kVocab, kVocab, params, none, 0}).size(), 2u);
}

TEST(Sample, PenaltiesAndBias) {
  std::vector<float> logits(kVocab, 0.0f);
  logits[1] = 2.0f;
  logits[2] = 1.9f;
  logits[3] = -1.0f;
  TokenHistory history;
  history.output_counts[1] = 3;
  history.prompt_counts[2] = 1;
  SamplingParams params;
  params.presence_penalty = 0.5f;
  EXPECT_EQ(draw(logits, params, 0, history), 2) << "presence counts outputs, not the prompt";
  params = {};
  params.frequency_penalty = 0.01f;
  EXPECT_EQ(draw(logits, params, 0, history), 1);
  params.frequency_penalty = 0.04f;
  EXPECT_EQ(draw(logits, params, 0, history), 2);
  params = {};
  params.repetition_penalty = 3.0f;
  logits[4] = 0.7f;
  EXPECT_EQ(draw(logits, params, 0, history), 4) << "repetition counts prompt and output";
  params = {};
  params.logit_bias[3] = 4.0f;
  EXPECT_EQ(draw(logits, params, 0, history), 3);
}

TEST(Sample, DeadRowsAreNeverChosen) {
  auto logits = test_logits(3);
  logits[60] = 50.0f;
  SamplingParams params;
  const TokenHistory none;
  EXPECT_LT(sample({logits.data(), kVocab, 60, params, none, 0}), 60);
  params.temperature = 5.0f;
  for (int64_t position = 0; position < 500; ++position) {
    EXPECT_LT(sample({logits.data(), kVocab, 60, params, none, position}), 60);
  }
}

TEST(Sample, NanStops) {
  auto logits = test_logits(4);
  logits[10] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(draw(logits, {}, 0), -1);
  SamplingParams params;
  params.temperature = 1.0f;
  EXPECT_EQ(draw(logits, params, 0), -1);
}

TEST(Sample, OnlySeedAndPositionPickTheNumber) {
  const auto logits = test_logits(5);
  SamplingParams params;
  params.temperature = 1.0f;
  params.seed = 9;
  int n_changed_by_seed = 0;
  int n_changed_by_position = 0;
  for (int64_t position = 0; position < 100; ++position) {
    const int32_t token = draw(logits, params, position);
    EXPECT_EQ(draw(logits, params, position), token);
    SamplingParams other = params;
    other.seed = 10;
    n_changed_by_seed += draw(logits, other, position) != token ? 1 : 0;
    n_changed_by_position += draw(logits, params, position + 1000) != token ? 1 : 0;
  }
  EXPECT_GT(n_changed_by_seed, 50);
  EXPECT_GT(n_changed_by_position, 50);
}

}  // namespace
}  // namespace lockstep
