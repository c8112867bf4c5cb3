// The golden model behind a RankEngine, on one rank or on two threads that share a mailbox.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/model/checkpoint.h"
#include "engine/model/config.h"
#include "engine/rank/engine.h"
#include "engine/rank/weights.h"

namespace lockstep::testing {

// Config, checkpoint and the weights of TP=1 and of both TP=2 ranks, loaded once per process.
struct GoldenModel {
  ModelConfig config;
  Checkpoint checkpoint;
  RankWeights whole;
  RankWeights halves[2];
};
const GoldenModel& golden_model();

// With LOCKSTEP_TEST_DEVICE, where precision bf16 alone exists.
bool tests_run_on_card();

// The oracle's prompts by name ("code-short", "zh-2k", ...).
std::vector<int32_t> oracle_prompt(const std::string& name);
std::vector<int32_t> oracle_greedy(const std::string& name);

// One engine on one rank.
class SoloEngine {
 public:
  explicit SoloEngine(const EngineOptions& options, int n_threads = 1);
  RankEngine* operator->() { return engine_.get(); }
  RankEngine& get() { return *engine_; }

 private:
  ThreadPool pool_;
  std::unique_ptr<Communicator> comm_;
  std::unique_ptr<RankEngine> engine_;
};

// Runs the requests on two ranks, each on its own thread; returns both ranks' results.
struct PairResults {
  std::vector<RequestResult> ranks[2];
};
PairResults run_pair(const EngineOptions& options, const std::vector<Request>& requests);

Request greedy_request(const std::string& name, std::vector<int32_t> prompt, int64_t max_tokens);

// Distinct seed, temperature and filters for each index.
Request sampled_request(int index, std::vector<int32_t> prompt, int64_t max_tokens);

// All committed bits of a running request: GDN and convolution states, K and V of every layer.
std::vector<float> committed_state(const RankEngine& engine, uint64_t id);

std::vector<std::vector<int32_t>> ids_of(const std::vector<RequestResult>& results);

}  // namespace lockstep::testing
