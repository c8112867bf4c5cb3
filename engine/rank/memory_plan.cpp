#include "engine/rank/memory_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/progress.h"
#include "engine/model/shard_plan.h"
#include "engine/rank/round_memory.h"

namespace lockstep {
namespace {

int64_t state_floats(const GdnConfig& gdn) {
  return int64_t{gdn.n_v_heads} * gdn.k_head_dim * gdn.v_head_dim +
         int64_t{gdn.conv_channels()} * (kConvWidth - 1);
}

int64_t states_bytes(const ModelConfig& config, const RankDims& dims,
                     const EngineOptions& options) {
  const int64_t n_layers = config.n_layers() - config.n_kv_layers();
  const int64_t state = state_floats(dims.gdn);
  // A rewind starts from the state before the round and replays its inputs.
  const int64_t column = int64_t{dims.gdn.conv_channels()} + 2 * int64_t{dims.gdn.n_v_heads};
  const int64_t record = options.n_drafts > 0 ? state + (options.n_drafts + 1) * column : 0;
  return options.n_slots * n_layers * (state + record) * static_cast<int64_t>(sizeof(float));
}

// Floats of the buffers of Workspace and MtpWorkspace, of activations packed for a product, and of
// the logits: see the comments at their declarations for the widths.
int64_t workspace_bytes(const ModelConfig& config, const RankDims& dims, bool has_mtp,
                        const EngineOptions& options, int64_t context) {
  const int64_t hidden = config.hidden_size;
  const int64_t head_width = int64_t{dims.n_heads} * config.head_dim;
  const int64_t kv_width = int64_t{dims.n_kv_heads} * config.head_dim;
  const int64_t inter = dims.intermediate_size;
  const int64_t channels = dims.gdn.conv_channels();
  const int64_t v_width = dims.gdn.v_width();
  const int64_t gates = 2 * int64_t{dims.gdn.n_v_heads};
  const int64_t columns =
      std::max(std::min(options.prefill_grid, context), decode_columns(options));
  const int64_t narrow = std::max(kv_width, gates);
  const int64_t per_column = 4 * hidden + std::max({2 * head_width, channels, inter}) +
                             std::max({head_width, v_width, inter}) + 2 * narrow +
                             std::max(head_width, v_width) + channels +
                             std::max({hidden, head_width, v_width, inter});
  // A chunk's MTP slots go through the layer with their rows and embeddings.
  const int64_t mtp_column = has_mtp && options.n_drafts > 0 ? 9 * hidden + 2 * kv_width : 0;
  const int64_t logit_rows = decode_columns(options) * (dims.n_ranks > 1 ? 3 : 2);
  const int64_t n_floats =
      columns * (per_column + mtp_column) + logit_rows * int64_t{config.vocab_size};
  return n_floats * static_cast<int64_t>(sizeof(float));
}

MemoryPlan plan_for(const ModelConfig& config, const RankDims& dims, const WeightFacts& weights,
                    const EngineOptions& options) {
  MemoryPlan plan;
  plan.max_context = context_limit(config, options);
  plan.n_slots = options.n_slots;
  plan.weights = weights.n_bytes;
  plan.kv = kv_bytes(kv_shape(config, dims, weights.has_mtp, options));
  plan.states = states_bytes(config, dims, options);
  // Snapshots lie in the host's memory, which a card's rank does not plan with.
  plan.snapshots = options.device == nullptr ? options.prefix_cache_bytes : 0;
  plan.workspace = workspace_bytes(config, dims, weights.has_mtp, options, plan.max_context);
  if (options.device != nullptr) {
    plan.workspace += round_bytes(config, dims, weights.has_mtp, options);
  }
  return plan;
}

// Longest context, in whole pages, whose plan stays within `limit`; 0: none does.
int64_t longest_context(const ModelConfig& config, const RankDims& dims, const WeightFacts& weights,
                        const EngineOptions& options, int64_t limit) {
  int64_t fits = 0;
  int64_t too_long = context_limit(config, {}) / kPageTokens + 1;
  while (too_long - fits > 1) {
    const int64_t middle = fits + (too_long - fits) / 2;
    EngineOptions tried = options;
    tried.max_context = middle * kPageTokens;
    const bool ok = plan_for(config, dims, weights, tried).total() <= limit;
    (ok ? fits : too_long) = middle;
  }
  return fits * kPageTokens;
}

}  // namespace

WeightFacts weight_facts(const ModelSource& source, int n_ranks, int rank) {
  WeightFacts facts;
  facts.has_mtp =
      source.config.n_mtp_layers > 0 && source.checkpoint->find("mtp.norm.weight") != nullptr;
  if (source.sharded || n_ranks == 1) {
    facts.n_bytes = source.checkpoint->n_bytes();
    return facts;
  }
  for (const ShardRow& row : make_shard_plan(source.config, *source.checkpoint, n_ranks)) {
    facts.n_bytes += row.local_bytes(rank);
  }
  return facts;
}

int64_t live_tokens(const ModelConfig& config, const EngineOptions& options) {
  return options.n_live_tokens > 0 ? std::min<int64_t>(options.n_live_tokens, config.vocab_size)
                                   : config.vocab_size;
}

int64_t decode_columns(const EngineOptions& options) {
  return int64_t{options.n_slots} * (options.n_drafts + 1);
}

int64_t context_limit(const ModelConfig& config, const EngineOptions& options) {
  return options.max_context > 0 ? std::min(options.max_context, config.max_positions)
                                 : config.max_positions;
}

KvCacheShape kv_shape(const ModelConfig& config, const RankDims& dims, bool has_mtp,
                      const EngineOptions& options) {
  // One page more than a full context needs: the copy of a cached prefix's last page.
  const int64_t pages = (KvCache::pages_for(context_limit(config, options)) + 1) * options.n_slots;
  const int n_layers = config.n_kv_layers() + (has_mtp ? 1 : 0);
  return {options.kv_type, n_layers, dims.n_kv_heads, config.head_dim, pages};
}

MemoryPlan plan_memory(const ModelConfig& config, const RankDims& dims, const WeightFacts& weights,
                       const EngineOptions& options, int64_t device_memory) {
  const MemoryPlan plan = plan_for(config, dims, weights, options);
  if (device_memory == 0 || plan.total() <= device_memory) return plan;
  const int64_t longest = longest_context(config, dims, weights, options, device_memory);
  if (longest == 0) {
    fail(
        "--device-memory {}: weights ({}), states ({}), snapshots ({}) and workspace ({}) leave no "
        "room for a page of KV in each of {} slots; use fewer --slots or a smaller "
        "--prefix-cache or --prefill-grid",
        device_memory, plan.weights, plan.states, plan.snapshots, plan.workspace, plan.n_slots);
  }
  if (options.max_context > 0) {
    fail(
        "--device-memory {}: {} positions in each of {} slots need {} bytes; --max-context {} fits",
        device_memory, plan.max_context, plan.n_slots, plan.total(), longest);
  }
  EngineOptions fitting = options;
  fitting.max_context = longest;
  return plan_for(config, dims, weights, fitting);
}

std::string to_text(const MemoryPlan& plan, int rank) {
  const auto bytes = [](int64_t n) { return human_bytes(static_cast<double>(n)); };
  return fmt::format(
      "memory of rank {}: {} = weights {} + KV {} + states {} + snapshots {} + workspace {}; "
      "{} slots of {} positions",
      rank, bytes(plan.total()), bytes(plan.weights), bytes(plan.kv), bytes(plan.states),
      bytes(plan.snapshots), bytes(plan.workspace), plan.n_slots, plan.max_context);
}

std::string to_json(const MemoryPlan& plan, int rank, int64_t device_memory) {
  const nlohmann::ordered_json json = {{"rank", rank},
                                       {"slots", plan.n_slots},
                                       {"max_context", plan.max_context},
                                       {"device_memory", device_memory},
                                       {"weights", plan.weights},
                                       {"kv", plan.kv},
                                       {"states", plan.states},
                                       {"snapshots", plan.snapshots},
                                       {"workspace", plan.workspace},
                                       {"total", plan.total()}};
  return json.dump() + "\n";
}

}  // namespace lockstep
