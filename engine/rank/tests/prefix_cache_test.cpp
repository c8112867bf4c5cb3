// I5: a prefix-cache hit equals a cold run, bit for bit, with the same drafts and acceptance.
#include <gtest/gtest.h>

#include "engine/rank/tests/golden_engine.h"

namespace lockstep::testing {
namespace {

constexpr int64_t kGrid = 64;
constexpr int64_t kBudget = int64_t{64} << 20;

EngineOptions cached_options(int64_t budget_bytes = kBudget) {
  EngineOptions options;
  options.n_drafts = 3;
  options.prefill_grid = kGrid;
  options.max_context = 1024;
  options.prefix_cache_bytes = budget_bytes;
  return options;
}

std::vector<int32_t> prompt_of(const std::string& name, int64_t n) {
  std::vector<int32_t> prompt = oracle_prompt(name);
  prompt.resize(static_cast<size_t>(n));
  return prompt;
}

void expect_same_run(const RequestResult& actual, const RequestResult& expected,
                     const std::string& what) {
  EXPECT_EQ(actual.ids, expected.ids) << what;
  EXPECT_EQ(actual.mtp.accepted, expected.mtp.accepted) << what;
  EXPECT_EQ(actual.mtp.drafted, expected.mtp.drafted) << what;
  ASSERT_EQ(actual.mtp.draft_rounds.size(), expected.mtp.draft_rounds.size()) << what;
  for (size_t i = 0; i < actual.mtp.draft_rounds.size(); ++i) {
    EXPECT_EQ(actual.mtp.draft_rounds[i].drafts, expected.mtp.draft_rounds[i].drafts) << what;
  }
  ASSERT_EQ(actual.logits.size(), expected.logits.size()) << what;
  for (size_t i = 0; i < actual.logits.size(); ++i) {
    EXPECT_EQ(actual.logits[i].values, expected.logits[i].values) << what << " step " << i;
  }
}

Request request_for(const std::string& name, std::vector<int32_t> prompt) {
  Request request = greedy_request(name, std::move(prompt), 16);
  request.n_logits = 4;
  request.report_drafts = true;
  return request;
}

RequestResult run_cold(const Request& request) {
  SoloEngine engine(cached_options(0));
  return engine->run({request})[0];
}

TEST(PrefixCache, SamePromptTwiceAtBorders) {
  for (const int64_t n : {63, 64, 65, 127, 128, 129, 191, 192, 193, 300}) {
    const Request request = request_for("p", prompt_of("code-3k", n));
    const RequestResult cold = run_cold(request);
    SoloEngine engine(cached_options());
    expect_same_run(engine->run({request})[0], cold, "first, n=" + std::to_string(n));
    const RequestResult warm = engine->run({request})[0];
    expect_same_run(warm, cold, "second, n=" + std::to_string(n));
    EXPECT_EQ(warm.cache_hit_tokens, (n - 1) / kGrid * kGrid);
    EXPECT_EQ(warm.computed_tokens, n - warm.cache_hit_tokens);
  }
}

TEST(PrefixCache, SuffixComputesAtMostSuffixAndGrid) {
  const auto base = prompt_of("code-3k", 300);
  SoloEngine engine(cached_options());
  engine->run({request_for("base", base)});
  for (const int64_t suffix : {1, 20, 63, 64, 65}) {
    auto longer = prompt_of("code-3k", 300 + suffix);
    const Request request = request_for("longer", longer);
    const RequestResult warm = engine->run({request})[0];
    expect_same_run(warm, run_cold(request), "suffix " + std::to_string(suffix));
    EXPECT_GT(warm.cache_hit_tokens, 0);
    EXPECT_LE(warm.computed_tokens, suffix + kGrid);
  }
}

TEST(PrefixCache, OtherPromptsBetweenAndEvictionPressure) {
  const Request a = request_for("a", prompt_of("code-3k", 200));
  const Request b = request_for("b", prompt_of("zh-2k", 260));
  const RequestResult cold_a = run_cold(a);
  const RequestResult cold_b = run_cold(b);
  // Room for about one snapshot: A is evicted by B and runs cold again.
  SoloEngine small(cached_options(int64_t{3} << 20));
  SoloEngine large(cached_options());
  for (SoloEngine* engine : {&small, &large}) {
    expect_same_run((*engine)->run({a})[0], cold_a, "A");
    expect_same_run((*engine)->run({b})[0], cold_b, "B");
    expect_same_run((*engine)->run({a})[0], cold_a, "A again");
  }
  EXPECT_EQ(small->run({b})[0].cache_hit_tokens, 0);
  EXPECT_GT(large->run({b})[0].cache_hit_tokens, 0);
}

TEST(PrefixCache, PartingPromptsShareTheirCommonGridPoint) {
  std::vector<int32_t> common = prompt_of("code-3k", 150);
  const auto with_tail = [&](const std::string& name) {
    std::vector<int32_t> prompt = common;
    const auto tail = prompt_of(name, 100);
    prompt.insert(prompt.end(), tail.begin(), tail.end());
    return prompt;
  };
  SoloEngine engine(cached_options());
  engine->run({request_for("first", with_tail("zh-2k"))});
  engine->run({request_for("second", with_tail("chat-tool"))});
  const Request third = request_for("third", with_tail("code-short"));
  const RequestResult warm = engine->run({third})[0];
  EXPECT_EQ(warm.cache_hit_tokens, 128);
  expect_same_run(warm, run_cold(third), "third");
}

// The restored state itself, against a fresh prefill, at every position modulo the grid.
TEST(PrefixCache, RestoredStateEqualsFreshPrefill) {
  const auto longest = prompt_of("code-3k", 3 * kGrid);
  for (int64_t n = 2 * kGrid; n < 3 * kGrid; ++n) {
    std::vector<int32_t> prompt(longest.begin(), longest.begin() + n);
    const Request request = request_for("p", prompt);
    SoloEngine engine(cached_options());
    engine->run({request});
    const uint64_t id = engine->submit(request);
    while (engine->slot_of(id) == nullptr || !engine->slot_of(id)->decoding) engine->step();
    ASSERT_EQ(engine->slot_of(id)->result->cache_hit_tokens, (n - 1) / kGrid * kGrid);
    SoloEngine fresh(cached_options(0));
    const uint64_t fresh_id = fresh->submit(request);
    while (fresh->slot_of(fresh_id) == nullptr || !fresh->slot_of(fresh_id)->decoding)
      fresh->step();
    ASSERT_EQ(committed_state(engine.get(), id), committed_state(fresh.get(), fresh_id)) << n;
  }
}

}  // namespace
}  // namespace lockstep::testing
