// I4: speculation changes speed, never text; and what a rewind leaves is what plain decode would
// have.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "engine/base/error.h"
#include "engine/ops/gated_delta/gated_delta.h"
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
  // Few prompts and many requests: the prefix cache saves most of the prefill.
  const auto run = [&](int k) {
    EngineOptions options = options_with(k, 8);
    options.prefill_grid = kGdnChunk;
    options.prefix_cache_bytes = int64_t{64} << 20;
    SoloEngine engine(options);
    return engine->run(requests);
  };
  const auto expected = ids_of(run(0));
  for (int k = 1; k <= kMaxDrafts; ++k) {
    const auto results = run(k);
    EXPECT_EQ(ids_of(results), expected) << "k=" << k;
    int64_t accepted = 0;
    int64_t refused = 0;
    for (const RequestResult& result : results) {
      accepted += result.mtp.accepted;
      refused += result.mtp.drafted - result.mtp.accepted;
    }
    EXPECT_GT(accepted, 50) << "k=" << k;
    EXPECT_GT(refused, 50) << "k=" << k;
  }
}

struct StateComparison {
  std::set<int64_t> residues;  // positions modulo the grid at which states were compared
  int64_t n_refused = 0;       // drafts whose columns were rewound
};

// Runs a request at two depths and compares all committed bits whenever both stand at the same
// position. Without drafts there is no MTP cache: the main layers alone are compared then.
void compare_states(const std::vector<int32_t>& prompt, int slow_k, int fast_k,
                    StateComparison& found) {
  const Request request = greedy_request("states", prompt, 96);
  SoloEngine slow(options_with(slow_k, 1));
  SoloEngine fast(options_with(fast_k, 1));
  const uint64_t slow_id = slow->submit(request);
  const uint64_t fast_id = fast->submit(request);
  const auto position = [](SoloEngine& engine, uint64_t id) {
    const Slot* slot = engine->slot_of(id);
    return slot == nullptr || !slot->decoding ? -1 : slot->sequence.n_positions;
  };
  bool running = true;
  while (running) {
    const int64_t slow_at = position(slow, slow_id);
    const int64_t fast_at = position(fast, fast_id);
    if (slow_at == fast_at && slow_at >= 0) {
      const auto expected = committed_state(slow.get(), slow_id);
      auto actual = committed_state(fast.get(), fast_id);
      if (slow_k == 0) actual.resize(expected.size());
      ASSERT_EQ(actual, expected) << prompt.size() << " prompt tokens, position " << slow_at;
      found.residues.insert(slow_at % kGdnChunk);
    }
    running = fast_at <= slow_at ? fast->step() : slow->step();
    const Slot* slot = fast->slot_of(fast_id);
    if (slot != nullptr) {
      found.n_refused =
          std::max(found.n_refused, slot->result->mtp.drafted - slot->result->mtp.accepted);
    }
  }
}

// What a rewind leaves is what plain decode would have, wherever in the grid it happens.
TEST(Speculation, RewindLeavesTheStateOfPlainDecode) {
  StateComparison found;
  for (const char* name : {"chat-code", "zh-short", "chat-memory", "utf8-mixed"}) {
    compare_states(oracle_prompt(name), 0, 3, found);
  }
  // Rounds end where drafts are refused: shorter prompts meet the residues that are still left out.
  std::vector<int32_t> prompt = oracle_prompt("zh-short");
  for (int i = 0; i < 16 && found.residues.size() < static_cast<size_t>(kGdnChunk); ++i) {
    prompt.pop_back();
    compare_states(prompt, 0, 3, found);
  }
  EXPECT_EQ(found.residues.size(), static_cast<size_t>(kGdnChunk));
  EXPECT_GT(found.n_refused, 20);
}

// The MTP layer's cache too, which depends on what was fed and not on how it was guessed.
TEST(Speculation, EveryDepthLeavesTheSameMtpCache) {
  StateComparison found;
  compare_states(oracle_prompt("zh-short"), 1, 3, found);
  compare_states(oracle_prompt("zh-short"), 1, 5, found);
  EXPECT_GT(found.residues.size(), 10u);
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
  few.draft_vocab.resize(600);
  std::iota(few.draft_vocab.begin(), few.draft_vocab.end(), 0);
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
