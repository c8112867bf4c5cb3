// I1 to I3: the same bits run to run, on both ranks, and on one rank or two.
#include <gtest/gtest.h>

#include "engine/ops/common/cpu_target.h"
#include "engine/rank/tests/golden_engine.h"

namespace lockstep::testing {
namespace {

EngineOptions rank_options(Precision precision) {
  EngineOptions options;
  options.precision = precision;
  options.kv_type = precision == Precision::fp32 ? KvType::fp32 : KvType::bf16;
  options.n_drafts = 3;
  options.n_slots = 3;
  options.prefill_grid = 128;
  options.max_context = 512;
  options.prefix_cache_bytes = int64_t{16} << 20;
  return options;
}

std::vector<Request> requests_for_ranks() {
  std::vector<Request> requests;
  int index = 0;
  for (const char* name : {"code-short", "zh-short", "chat-tool", "one-token", "repeat"}) {
    requests.push_back(greedy_request(name, oracle_prompt(name), 24));
    requests.push_back(sampled_request(index++, oracle_prompt(name), 24));
  }
  for (Request& request : requests) request.n_logits = 8;
  return requests;
}

void expect_same_bits(const std::vector<RequestResult>& a, const std::vector<RequestResult>& b,
                      const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].ids, b[i].ids) << what << " request " << i;
    EXPECT_EQ(a[i].mtp.accepted, b[i].mtp.accepted) << what << " request " << i;
    ASSERT_EQ(a[i].logits.size(), b[i].logits.size());
    for (size_t step = 0; step < a[i].logits.size(); ++step) {
      EXPECT_EQ(a[i].logits[step].values, b[i].logits[step].values) << what << " step " << step;
      EXPECT_EQ(a[i].logits[step].log_sum_exp, b[i].logits[step].log_sum_exp) << what;
    }
  }
}

class Ranks : public ::testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    if (tests_run_on_card() && GetParam() == Precision::fp32) GTEST_SKIP() << "a card keeps bf16";
  }
};

TEST_P(Ranks, OneRankTwoRanksAndRunToRunGiveTheSameBits) {
  const EngineOptions options = rank_options(GetParam());
  const auto requests = requests_for_ranks();
  SoloEngine first(options);
  const auto expected = first->run(requests);
  SoloEngine second(options);
  expect_same_bits(second->run(requests), expected, "run to run");
  SoloEngine threaded(options, 2);
  expect_same_bits(threaded->run(requests), expected, "two threads");
  const PairResults pair = run_pair(options, requests);
  expect_same_bits(pair.ranks[0], expected, "TP=2 rank 0");
  expect_same_bits(pair.ranks[1], expected, "TP=2 rank 1");
}

TEST_P(Ranks, EveryInstructionSetGivesTheSameBits) {
  const EngineOptions options = rank_options(GetParam());
  const auto requests = requests_for_ranks();
  SoloEngine reference(options);
  const auto expected = reference->run(requests);
  for (const std::string& target : available_cpu_targets()) {
    select_cpu_target(target);
    SoloEngine engine(options);
    expect_same_bits(engine->run(requests), expected, target);
  }
  select_cpu_target("auto");
}

INSTANTIATE_TEST_SUITE_P(Precisions, Ranks, ::testing::Values(Precision::fp32, Precision::bf16));

}  // namespace
}  // namespace lockstep::testing
