// What a rank will need of memory, known before anything is loaded.
#pragma once

#include <cstdint>
#include <string>

#include "engine/model/config.h"
#include "engine/model/model_source.h"
#include "engine/rank/engine_options.h"
#include "engine/rank/kv_cache.h"
#include "engine/rank/weights.h"

namespace lockstep {

// Bytes of one rank.
struct MemoryPlan {
  int64_t weights = 0;    // as stored, this rank's part
  int64_t kv = 0;         // pages of all slots, MTP's layer included
  int64_t states = 0;     // GDN and convolution states of all slots, and what a rewind starts from
  int64_t snapshots = 0;  // budget of the prefix cache's states; on the host, so 0 on a card
  int64_t workspace = 0;  // activations and logits of the largest pass; on a card rounds too
  int64_t max_context = 0;
  int n_slots = 0;

  int64_t total() const { return weights + kv + states + snapshots + workspace; }
};

// What the plan needs to know of a rank's weights.
struct WeightFacts {
  int64_t n_bytes = 0;
  bool has_mtp = false;
};

WeightFacts weight_facts(const ModelSource& source, int n_ranks, int rank);

// Positions of a slot: options.max_context, or what the model allows when that is 0 or more.
int64_t context_limit(const ModelConfig& config, const EngineOptions& options);
// Tokens that may be chosen: the vocabulary's rows that exist.
int64_t live_tokens(const ModelConfig& config, const EngineOptions& options);
// Columns of a decode round at most: the newest token and its drafts in every slot.
int64_t decode_columns(const EngineOptions& options);

// Pages of all slots for a full context each.
KvCacheShape kv_shape(const ModelConfig& config, const RankDims& dims, bool has_mtp,
                      const EngineOptions& options);

// `device_memory` (bytes; 0: no cap) is what the plan must stay within: with max_context 0 the
// context becomes the longest that fits, whole pages of it. Throws Error that says what the plan
// needs and what would fit.
MemoryPlan plan_memory(const ModelConfig& config, const RankDims& dims, const WeightFacts& weights,
                       const EngineOptions& options, int64_t device_memory);

// One line for people, and an object for machines (docs/formats/jobs.md).
std::string to_text(const MemoryPlan& plan, int rank);
std::string to_json(const MemoryPlan& plan, int rank, int64_t device_memory);

}  // namespace lockstep
