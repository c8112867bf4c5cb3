// The scheduler of one rank: admits requests into slots, prefills on the grid, decodes all running slots
// together. It is a deterministic function of the request log: no wall time, no thread timing enters.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/comm/communicator.h"
#include "engine/model/checkpoint.h"
#include "engine/model/config.h"
#include "engine/rank/kv_cache.h"
#include "engine/rank/layers.h"
#include "engine/rank/request.h"

namespace lockstep {

enum class Precision : uint8_t { fp32, bf16 };

struct EngineOptions {
  Precision precision = Precision::bf16;
  KvType kv_type = KvType::bf16;
  int64_t prefill_grid = 512;  // positions; a multiple of kGdnChunk
  int64_t max_context = 0;     // positions per slot; 0: what the model allows
  int n_slots = 1;
};

class RankEngine {
 public:
  // All references must outlive the engine.
  RankEngine(const ModelConfig& config, const RankWeights& weights, const EngineOptions& options,
             Communicator& comm, ThreadPool& pool);
  ~RankEngine();

  // Throws Error, before any work, when the request can never fit or holds a token outside the vocabulary.
  void check_request(const Request& request) const;

  // Runs the requests to their ends, in the order given, up to n_slots at a time.
  std::vector<RequestResult> run(const std::vector<Request>& requests);

  // Taps of a finished request of the last run; null when it asked for none.
  const TapRecorder* taps(size_t request_index) const;

 private:
  struct Slot;

  void admit(const std::vector<Request>& requests);
  void prefill_chunk(Slot& slot);
  void decode_round();
  // Chooses the next token of a slot from its logits row and books it.
  void accept_logits(Slot& slot, const float* logits);
  void finish(Slot& slot);
  void record_states(Slot& slot);
  void verify_round(const std::vector<Slot*>& slots, const float* normed, int64_t n_rows);

  const EngineOptions options_;
  KvCache kv_;
  Model model_;
  Workspace workspace_;
  std::vector<float> logits_;
  std::deque<size_t> waiting_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<RequestResult> results_;
  std::vector<std::unique_ptr<TapRecorder>> taps_;
  int round_ = 0;
};

}  // namespace lockstep
