// Decode rounds of a card: as recorded graphs or op by op, with drafts made in the round or
// without, the text and all reported numbers have the same bits. Needs LOCKSTEP_TEST_DEVICE.
#include <gtest/gtest.h>

#include "engine/rank/memory_plan.h"
#include "engine/rank/round_memory.h"
#include "engine/rank/tests/golden_engine.h"

namespace lockstep::testing {
namespace {

class CardRounds : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!tests_run_on_card()) GTEST_SKIP() << "LOCKSTEP_TEST_DEVICE names no card";
  }
};

EngineOptions round_options(int n_drafts, bool graphs) {
  EngineOptions options;
  options.kv_type = KvType::int8;
  options.n_drafts = n_drafts;
  options.n_slots = 2;
  options.prefill_grid = 128;
  options.max_context = 512;
  options.cuda_graphs = graphs;
  return options;
}

// Greedy, sampled with and without lists of candidates, penalised, forced, and with
// log-probabilities that the card reports and more than it can.
std::vector<Request> mixed_requests() {
  std::vector<Request> requests;
  int index = 0;
  for (const char* name : {"code-short", "zh-short", "chat-tool", "one-token"}) {
    requests.push_back(greedy_request(name, oracle_prompt(name), 20));
    requests.push_back(sampled_request(index++, oracle_prompt(name), 20));
  }
  requests[0].force_ids = oracle_greedy("zh-short");
  requests[0].force_ids.resize(6);
  requests[1].n_logits = 5;
  requests[2].n_logits = 40;
  requests[3].force_ids = {1, 2, 3};
  requests[3].n_logits = 3;
  return requests;
}

struct Outcome {
  std::vector<RequestResult> results;
  int64_t n_recorded;
};

Outcome run_rounds(int n_drafts, bool graphs, const std::vector<Request>& requests) {
  SoloEngine engine(round_options(n_drafts, graphs));
  std::vector<RequestResult> results = engine->run(requests);
  return {std::move(results), engine->backend().n_recorded_rounds()};
}

void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_EQ(ids_of(a.results), ids_of(b.results)) << what;
  for (size_t i = 0; i < a.results.size(); ++i) {
    ASSERT_EQ(a.results[i].logits.size(), b.results[i].logits.size()) << what;
    for (size_t step = 0; step < a.results[i].logits.size(); ++step) {
      const StepLogits& x = a.results[i].logits[step];
      const StepLogits& y = b.results[i].logits[step];
      EXPECT_EQ(x.ids, y.ids) << what << ", request " << i << ", step " << step;
      EXPECT_EQ(x.values, y.values) << what << ", request " << i << ", step " << step;
      EXPECT_EQ(x.log_sum_exp, y.log_sum_exp) << what << ", request " << i << ", step " << step;
      EXPECT_EQ(x.chosen_value, y.chosen_value) << what << ", request " << i << ", step " << step;
    }
  }
}

TEST_F(CardRounds, StayWithinTheMemoryPlan) {
  const GoldenModel& golden = golden_model();
  for (const size_t n_draft_rows : {size_t{0}, size_t{96}}) {
    EngineOptions options = round_options(3, true);
    for (size_t i = 0; i < n_draft_rows; ++i) options.draft_vocab.push_back(static_cast<int>(i));
    SoloEngine engine(options);
    const std::unique_ptr<Device> device = open_device("cpu");
    options.device = device.get();  // any: it is a card's plan
    const MemoryPlan plan = plan_memory(golden.config, golden.whole.dims, {1, true}, options, 0);
    EXPECT_LE(engine->backend().workspace_bytes(), plan.workspace) << n_draft_rows;
    EXPECT_GE(engine->backend().workspace_bytes(),
              round_bytes(golden.config, golden.whole.dims, true, options) * 9 / 10)
        << n_draft_rows;
  }
}

TEST_F(CardRounds, GraphsAndDepthsChangeNoBit) {
  const std::vector<Request> requests = mixed_requests();
  const Outcome plain = run_rounds(0, false, requests);
  EXPECT_EQ(plain.n_recorded, 0);
  for (const int n_drafts : {0, 3, 5}) {
    const Outcome graphs = run_rounds(n_drafts, true, requests);
    EXPECT_GT(graphs.n_recorded, 0);
    expect_same(graphs, plain, "graphs, depth " + std::to_string(n_drafts));
  }
  const Outcome drafts = run_rounds(3, false, requests);
  expect_same(drafts, plain, "no graphs, depth 3");
  const Outcome again = run_rounds(3, true, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(again.results[i].mtp.accepted, drafts.results[i].mtp.accepted) << i;
  }
}

// The comparison can fail, and drafts of the card are worth something.
TEST_F(CardRounds, OtherSeedsGiveOtherTextAndDraftsAreTaken) {
  std::vector<Request> requests = {sampled_request(1, oracle_prompt("code-short"), 20),
                                   greedy_request("greedy", oracle_prompt("code-short"), 20)};
  const Outcome first = run_rounds(3, true, requests);
  ++requests[0].sampling.seed;
  const Outcome second = run_rounds(3, true, requests);
  EXPECT_NE(first.results[0].ids, second.results[0].ids);
  EXPECT_EQ(first.results[1].ids, second.results[1].ids);
  EXPECT_GT(first.results[1].mtp.accepted, 0);
}

// Assumed contexts are measured, so they must run through every bucket of attention launches.
TEST_F(CardRounds, AnAssumedContextRunsTheSameTwice) {
  EngineOptions options = round_options(3, true);
  options.max_context = 32768;
  Request request = greedy_request("long", std::vector<int32_t>(30'080 + 5, 0), 12);
  request.assumed_context = 30'080;
  std::vector<std::vector<int32_t>> ids;
  for (const int n_drafts : {0, 3}) {
    options.n_drafts = n_drafts;
    SoloEngine engine(options);
    ids.push_back(engine->run({request})[0].ids);
  }
  EXPECT_EQ(ids[0], ids[1]);
}

}  // namespace
}  // namespace lockstep::testing
