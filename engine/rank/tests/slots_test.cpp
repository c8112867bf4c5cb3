// I6 and I7: a request alone equals the same request among others, and what is cancelled leaves no
// trace.
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/rank/tests/golden_engine.h"

namespace lockstep::testing {
namespace {

EngineOptions slot_options(int n_slots, int n_drafts) {
  EngineOptions options;
  options.n_slots = n_slots;
  options.n_drafts = n_drafts;
  options.prefill_grid = 64;
  options.max_context = 640;
  options.prefix_cache_bytes = int64_t{16} << 20;
  return options;
}

std::vector<Request> mixed_requests() {
  std::vector<Request> requests;
  const char* names[] = {"code-short", "chat-tool", "zh-short",
                         "one-token",  "repeat",    "utf8-mixed"};
  int index = 0;
  for (const char* name : names) {
    requests.push_back(greedy_request(name, oracle_prompt(name), 24));
    requests.push_back(sampled_request(index++, oracle_prompt(name), 24));
  }
  return requests;
}

TEST(Slots, AloneEqualsAmongOthers) {
  const auto requests = mixed_requests();
  std::vector<std::vector<int32_t>> alone;
  for (const Request& request : requests) {
    SoloEngine engine(slot_options(1, 3));
    alone.push_back(engine->run({request})[0].ids);
  }
  for (const int n_slots : {2, 3, 8}) {
    SoloEngine engine(slot_options(n_slots, 3));
    int n_shared_rounds = 0;
    engine->set_events({{},
                        {},
                        [&](const RoundRecord& record) {
                          n_shared_rounds +=
                              __builtin_popcountll(record.decoding_slots) > 1 ? 1 : 0;
                        },
                        {}});
    EXPECT_EQ(ids_of(engine->run(requests)), alone) << n_slots << " slots";
    EXPECT_GT(n_shared_rounds, 10) << "requests did not advance together: nothing was shown";
  }
}

// Cancels the victim after `n_steps` rounds and then runs the others.
std::vector<std::vector<int32_t>> run_with_cancel(const std::vector<Request>& others,
                                                  const Request& victim, int n_steps) {
  SoloEngine engine(slot_options(2, 3));
  const uint64_t victim_id = engine->submit(victim);
  bool cancelled = false;
  engine->set_events({{},
                      [&](uint64_t id, const RequestResult& result) {
                        if (id == victim_id) {
                          cancelled = result.finish_reason == FinishReason::cancelled;
                        }
                      },
                      {},
                      {}});
  if (n_steps < 0) engine->cancel(victim_id);  // before it has a slot
  for (int i = 0; i < n_steps; ++i) engine->step();
  if (n_steps >= 0) engine->cancel(victim_id);
  while (engine->step()) {
  }
  EXPECT_TRUE(cancelled) << "after " << n_steps << " steps";
  return ids_of(engine->run(others));
}

TEST(Slots, CancelAtEveryPhaseLeavesNoTrace) {
  const auto requests = mixed_requests();
  SoloEngine clean(slot_options(2, 3));
  const auto expected = ids_of(clean->run(requests));
  // 184 prompt tokens on a grid of 64: the prefill takes three rounds after the first, empty one.
  const Request victim = greedy_request("victim", oracle_prompt("code-short"), 60);
  for (const int n_steps : {-1, 0, 1, 2, 3, 4, 5, 8}) {
    EXPECT_EQ(run_with_cancel(requests, victim, n_steps), expected) << n_steps << " steps";
  }
}

TEST(Slots, PagesComeBack) {
  SoloEngine engine(slot_options(2, 3));
  const int64_t n_free = engine->kv_cache().n_free_pages();
  engine->run(mixed_requests());
  int64_t n_cached = 0;
  for (const Snapshot& snapshot : engine->prefix_cache().snapshots()) {
    n_cached = std::max(n_cached, static_cast<int64_t>(snapshot.pages.size()));
  }
  EXPECT_GT(n_cached, 0);
  EXPECT_LT(engine->kv_cache().n_free_pages(), n_free);
}

TEST(Slots, RefusesWhatCannotFitBeforeAnyWork) {
  SoloEngine engine(slot_options(1, 0));
  EXPECT_THROW(engine->submit(greedy_request("long", oracle_prompt("code-3k"), 8)), Error);
  EXPECT_THROW(engine->submit(greedy_request("empty", {}, 8)), Error);
  EXPECT_THROW(engine->submit(greedy_request("bad", {1, 4096}, 8)), Error);
  EXPECT_THROW(engine->submit(greedy_request("bad", {-1}, 8)), Error);
  EXPECT_FALSE(engine->step());
}

// What was in the pages before must not show: another request has used them, and the prefix cache
// holds none of it.
TEST(Slots, AnAssumedContextIsTheSameWhateverCameBefore) {
  const std::vector<int32_t> text = oracle_prompt("chat-tool");
  Request request = greedy_request("assumed", std::vector<int32_t>(256, 7), 12);
  request.prompt.insert(request.prompt.end(), text.begin(), text.begin() + 5);
  request.assumed_context = 256;
  request.n_logits = 1;
  SoloEngine fresh(slot_options(1, 0));
  const RequestResult expected = fresh->run({request})[0];
  SoloEngine used(slot_options(1, 3));
  used->run({greedy_request("other", oracle_prompt("chat-tool"), 24)});
  const size_t n_snapshots = used->prefix_cache().snapshots().size();
  const RequestResult result = used->run({request})[0];
  EXPECT_EQ(result.ids, expected.ids);
  EXPECT_EQ(result.logits[0].values, expected.logits[0].values);
  EXPECT_EQ(result.computed_tokens, 5);
  EXPECT_EQ(used->prefix_cache().snapshots().size(), n_snapshots);
  request.assumed_context = 0;
  EXPECT_NE(fresh->run({request})[0].logits[0].values, expected.logits[0].values);
}

TEST(Slots, RefusesAnAssumedContextOffTheGridOrWithoutAPrompt) {
  SoloEngine engine(slot_options(1, 0));
  Request request = greedy_request("assumed", std::vector<int32_t>(128, 7), 8);
  for (const int64_t n : {63, 65, 128, 192}) {
    request.assumed_context = n;
    EXPECT_THROW(engine->submit(request), Error) << n;
  }
}

}  // namespace
}  // namespace lockstep::testing
