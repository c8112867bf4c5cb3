// The memory plan against what the engine then takes, and what it refuses.
#include "engine/rank/memory_plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/rank/round_memory.h"
#include "engine/rank/tests/golden_engine.h"

namespace lockstep::testing {
namespace {

const WeightFacts kFacts{20'000'000, true};

MemoryPlan plan_of(const EngineOptions& options, int64_t device_memory = 0) {
  const ModelConfig& config = golden_model().config;
  return plan_memory(config, rank_dims(config, 1, 0), kFacts, options, device_memory);
}

EngineOptions plan_options() {
  EngineOptions options;
  options.max_context = 1000;
  options.n_slots = 2;
  options.n_drafts = 3;
  options.prefill_grid = 128;
  options.prefix_cache_bytes = 1 << 20;
  return options;
}

TEST(MemoryPlan, HoldsWhatTheEngineTakes) {
  const EngineOptions options = plan_options();
  const MemoryPlan plan = plan_of(options);
  SoloEngine engine(options);
  EXPECT_EQ(plan.kv, engine->kv_cache().total_bytes());
  std::vector<Request> requests;
  for (const char* name : {"code-3k", "zh-2k"}) {
    auto prompt = oracle_prompt(name);
    prompt.resize(600);
    requests.push_back(greedy_request(name, prompt, 60));  // both decode together
  }
  for (const Request& request : requests) engine->submit(request);
  int64_t states = 0;
  while (engine->step()) {
    int64_t n_floats = 0;
    for (const uint64_t id : {0u, 1u}) {
      const Slot* slot = engine->slot_of(id);
      if (slot == nullptr) continue;
      for (const GdnState& gdn : slot->sequence.gdn) {
        n_floats += std::ssize(gdn.state) + std::ssize(gdn.conv);
      }
      for (const GdnRecord& record : slot->sequence.records) {
        n_floats += std::ssize(record.start.state) + std::ssize(record.start.conv) +
                    std::ssize(record.m) + std::ssize(record.log_decay) + std::ssize(record.beta);
      }
    }
    states = std::max<int64_t>(states, n_floats * 4);
  }
  EXPECT_LE(states, plan.states);
  EXPECT_GT(states, plan.states * 9 / 10);
  EXPECT_LE(engine->backend().workspace_bytes(), plan.workspace);
  EXPECT_GT(engine->backend().workspace_bytes(), plan.workspace / 2);
  EXPECT_EQ(plan.total(), plan.weights + plan.kv + plan.states + plan.snapshots + plan.workspace);
}

// What sampling keeps for every token that may be adjusted, drafts for every row that scores them.
TEST(MemoryPlan, ACardCountsItsRounds) {
  const ModelConfig& config = golden_model().config;
  const RankDims dims = rank_dims(config, 1, 0);
  const std::unique_ptr<Device> device = open_device("cpu");
  EngineOptions options = plan_options();
  const int64_t without = plan_of(options).workspace;
  options.device = device.get();
  const int64_t rounds = round_bytes(config, dims, true, options);
  EXPECT_EQ(plan_of(options).workspace, without + rounds);
  // Eight columns of two slots; bytes of an adjustment, of the logit it replaced, of a rank.
  const int64_t vocab = config.vocab_size;
  const int64_t sampling = 8 * vocab * (16 + 4 + 8);
  const int64_t drafts = vocab * (2 * 4 + 4);
  EXPECT_GT(rounds, sampling + drafts);
  EXPECT_LT(rounds, sampling + drafts + (1 << 20));
  const auto with = [&](auto change) {
    EngineOptions changed = options;
    change(changed);
    return round_bytes(config, dims, true, changed);
  };
  EXPECT_LT(with([](EngineOptions& o) { o.n_drafts = 0; }), rounds / 2);
  EXPECT_GT(with([](EngineOptions& o) { o.n_slots = 3; }), rounds);
  EXPECT_LT(with([](EngineOptions& o) { o.n_live_tokens = 100; }), rounds);
  const auto few_drafts = [](EngineOptions& o) { o.draft_vocab.assign(64, 1); };
  EXPECT_LT(with(few_drafts), rounds);
  EXPECT_GT(with(few_drafts), rounds - drafts + 64 * int64_t{config.hidden_size} * 2);
}

TEST(MemoryPlan, WeightsOfTwoRanksAreTheModelAndWhatIsReplicated) {
  const ModelSource source =
      open_model_source(std::string(LOCKSTEP_GOLDEN_DIR) + "/tiny-qwen3_5", "", 2, 0);
  const int64_t whole = weight_facts(source, 1, 0).n_bytes;
  const int64_t both = weight_facts(source, 2, 0).n_bytes + weight_facts(source, 2, 1).n_bytes;
  EXPECT_EQ(whole, source.checkpoint->n_bytes());
  EXPECT_GT(both, whole);
  EXPECT_LT(both, 2 * whole);
  EXPECT_TRUE(weight_facts(source, 2, 0).has_mtp);
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(MemoryPlan, ACapCutsTheContextOrIsRefused) {
  EngineOptions options = plan_options();
  const MemoryPlan full = plan_of(options);
  EXPECT_EQ(plan_of(options, full.total()).max_context, 1000);
  const std::string words = refusal([&] { plan_of(options, full.total() - 1); });
  EXPECT_NE(words.find("1000 positions in each of 2 slots need"), std::string::npos) << words;
  // What it recommends fits, and one page more does not.
  const int64_t recommended = std::stoll(words.substr(words.find("--max-context ") + 14));
  options.max_context = recommended;
  EXPECT_LE(plan_of(options, full.total() - 1).total(), full.total() - 1);
  options.max_context = recommended + kPageTokens;
  EXPECT_GT(plan_of(options).total(), full.total() - 1);

  options.max_context = 0;
  EXPECT_EQ(plan_of(options).max_context, golden_model().config.max_positions);
  const MemoryPlan fitted = plan_of(options, full.total() - 1);
  EXPECT_EQ(fitted.max_context, recommended);
  EXPECT_LE(fitted.total(), full.total() - 1);
  EXPECT_NE(refusal([&] { plan_of(options, kFacts.n_bytes); }).find("leave no room"),
            std::string::npos);
}

TEST(MemoryPlan, IsWrittenForPeopleAndMachines) {
  const MemoryPlan plan = plan_of(plan_options());
  const std::string text = to_text(plan, 1);
  EXPECT_NE(text.find("memory of rank 1: "), std::string::npos);
  EXPECT_NE(text.find("2 slots of 1000 positions"), std::string::npos);
  const auto json = nlohmann::json::parse(to_json(plan, 1, 77));
  EXPECT_EQ(json["rank"], 1);
  EXPECT_EQ(json["device_memory"], 77);
  EXPECT_EQ(json["max_context"], 1000);
  EXPECT_EQ(json["weights"], kFacts.n_bytes);
  EXPECT_EQ(json["total"], plan.total());
}

}  // namespace
}  // namespace lockstep::testing
