// I4: speculation changes speed, never text; and what a rewind leaves is what plain decode would
// have.
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/rank/tests/golden_engine.h"

namespace lockstep::testing {
namespace {

EngineOptions options_with(int n_drafts, int n_slots) {
  EngineOptions options;
  options.n_drafts = n_drafts;
  options.n_slots = n_slots;
  options.max_context = 1024;
  return options;
}

const std::vector<std::string> kPrompts = {"chat-code",  "chat-tool",  "one-token", "repeat",
                                           "utf8-mixed", "code-short", "zh-short",  "chat-memory"};

std::vector<Request> greedy_requests(int64_t max_tokens) {
  std::vector<Request> requests;
  for (const std::string& name : kPrompts) {
    requests.push_back(greedy_request(name, oracle_prompt(name), max_tokens));
  }
  return requests;
}

std::vector<Request> sampled_requests(int count, int64_t max_tokens) {
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    const std::string& name = kPrompts[static_cast<size_t>(i) % kPrompts.size()];
    requests.push_back(sampled_request(i, oracle_prompt(name), max_tokens));
  }
  return requests;
}

TEST(Speculation, GreedyTextIsTheSameForEveryDepth) {
  const auto requests = greedy_requests(64);
  SoloEngine plain(options_with(0, 1));
  const auto expected = ids_of(plain->run(requests));
  for (int k = 1; k <= kMaxDrafts; ++k) {
    SoloEngine engine(options_with(k, 4));
    const auto results = engine->run(requests);
    EXPECT_EQ(ids_of(results), expected) << "k=" << k;
    int64_t accepted = 0;
    for (const RequestResult& result : results) accepted += result.mtp.accepted;
    EXPECT_GT(accepted, 0) << "k=" << k << ": no draft was accepted, the check was vacuous";
  }
}

TEST(Speculation, SampledTextIsTheSameForEveryDepth) {
  const auto requests = sampled_requests(200, 12);
  SoloEngine plain(options_with(0, 8));
  const auto expected = ids_of(plain->run(requests));
  SoloEngine three(options_with(3, 8));
  const auto results = three->run(requests);
  EXPECT_EQ(ids_of(results), expected);
  int64_t accepted = 0;
  int64_t refused = 0;
  for (const RequestResult& result : results) {
    accepted += result.mtp.accepted;
    refused += result.mtp.drafted - result.mtp.accepted;
  }
  EXPECT_GT(accepted, 50);
  EXPECT_GT(refused, 50);
  const std::vector<Request> few(requests.begin(), requests.begin() + 24);
  const std::vector<std::vector<int32_t>> expected_few(expected.begin(), expected.begin() + 24);
  for (int k : {1, 2, 4, 5}) {
    SoloEngine engine(options_with(k, 8));
    EXPECT_EQ(ids_of(engine->run(few)), expected_few) << "k=" << k;
  }
}

// After every round of a k=3 run, the committed states equal those of plain decode at the same
// length.
TEST(Speculation, RewindLeavesTheStateOfPlainDecode) {
  for (const char* name : {"chat-code", "zh-short"}) {
    const Request request = greedy_request(name, oracle_prompt(name), 40);
    SoloEngine plain(options_with(0, 1));
    const uint64_t plain_id = plain->submit(request);
    SoloEngine fast(options_with(3, 1));
    const uint64_t fast_id = fast->submit(request);
    int n_compared = 0;
    int n_rewinds = 0;
    while (fast->step()) {
      const Slot* slot = fast->slot_of(fast_id);
      if (slot == nullptr || !slot->decoding) continue;
      const auto positions = [&] {
        const Slot* other = plain->slot_of(plain_id);
        return other == nullptr ? -1 : other->sequence.n_positions;
      };
      while (positions() < slot->sequence.n_positions && plain->step()) {
      }
      if (positions() != slot->sequence.n_positions) break;
      // Plain decode keeps no MTP cache: compare states and the main layers only.
      const auto expected = committed_state(plain.get(), plain_id);
      auto actual = committed_state(fast.get(), fast_id);
      ASSERT_GE(actual.size(), expected.size());
      actual.resize(expected.size());
      ASSERT_EQ(actual, expected) << name << " at position " << slot->sequence.n_positions;
      ++n_compared;
      n_rewinds = static_cast<int>(slot->result->mtp.drafted - slot->result->mtp.accepted);
    }
    EXPECT_GT(n_compared, 5);
    EXPECT_GT(n_rewinds, 0);
  }
}

// What a draft sees or may propose changes speed alone.
TEST(Speculation, DraftWindowAndVocabularyChangeNoText) {
  const auto text = oracle_prompt("code-3k");
  std::vector<Request> requests = {greedy_request("long", {text.begin(), text.begin() + 900}, 40)};
  requests.push_back(greedy_request("zh-short", oracle_prompt("zh-short"), 40));
  SoloEngine plain(options_with(0, 1));
  const auto expected = ids_of(plain->run(requests));
  EngineOptions narrow = options_with(3, 2);
  narrow.draft_window = 64;
  EngineOptions few = options_with(3, 2);
  few.draft_vocab = 600;
  for (const EngineOptions& options : {narrow, few}) {
    SoloEngine engine(options);
    const auto results = engine->run(requests);
    EXPECT_EQ(ids_of(results), expected);
    EXPECT_GT(results[0].mtp.accepted + results[1].mtp.accepted, 0);
  }
}

TEST(Speculation, ContextEndFallsBackToFewerDrafts) {
  const auto prompt = oracle_prompt("chat-code");
  EngineOptions options = options_with(5, 1);
  options.max_context = static_cast<int64_t>(prompt.size()) + 20;
  SoloEngine engine(options);
  const auto full = engine->run({greedy_request("full", prompt, 20)});
  ASSERT_EQ(full[0].ids.size(), 20u);
  const auto expected = oracle_greedy("chat-code");
  EXPECT_TRUE(std::equal(full[0].ids.begin(), full[0].ids.end(), expected.begin()));
  EXPECT_THROW(engine->run({greedy_request("too-long", prompt, 21)}), Error);
}

}  // namespace
}  // namespace lockstep::testing
