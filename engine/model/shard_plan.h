// Which part of which tensor each rank holds: a pure function of config and stored tensors.
// Column-parallel matrices (rows of W split): q, k, v, gate, up, GDN projections, lm_head.
// Row-parallel matrices (columns of W split): o_proj, out_proj, down_proj. Everything else:
// replicated. GDN projections and the convolution are split per section [Q | K | V], so that a
// rank's value heads find their key heads on the same rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/checkpoint.h"
#include "engine/model/config.h"
#include "engine/model/weight_formats.h"

namespace lockstep {

struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

enum class SplitKind : uint8_t { replicated, rows, columns };

// The cut of a logical matrix or per-head vector. ranges[rank], in the order in which the rank
// stores them; for `replicated` it is empty.
struct LogicalSplit {
  SplitKind kind = SplitKind::replicated;
  std::vector<std::vector<IndexRange>> ranges;
};

// `base` is a canonical name without ".weight" ("...self_attn.q_proj", "...linear_attn.A_log").
LogicalSplit logical_split(const ModelConfig& config, const std::string& base, int n_ranks);

// Throws Error that names the dimension which n_ranks does not divide.
void check_divisible(const ModelConfig& config, int n_ranks);

// One stored tensor of the checkpoint and what each rank gets of it.
struct ShardRow {
  std::string name;  // canonical
  const TensorInfo* source = nullptr;
  int axis = -1;                                // dimension that is cut; -1: whole on every rank
  std::vector<std::vector<IndexRange>> ranges;  // [rank], in steps of dimension `axis`

  std::vector<int64_t> local_shape(int rank) const;
  int64_t local_bytes(int rank) const;
};

using ShardPlan = std::vector<ShardRow>;

// The dimension of the stored tensor `name` on which the plan cuts, -1 for none, and its granule.
// The checkpoint may be whole or a rank's shard.
PartCut stored_part_cut(const ModelConfig& config, const Checkpoint& checkpoint,
                        const std::string& name, int n_ranks);

// Throws Error when a cut does not fall on a codec's granule, or for layers that the config leaves
// unused.
ShardPlan make_shard_plan(const ModelConfig& config, const Checkpoint& checkpoint, int n_ranks);

// Splits a tensor name into base and suffix: "x.mlp.up_proj.weight_scale" -> {"x.mlp.up_proj",
// "weight_scale"}; names without a known suffix ("...A_log") are their own base with suffix "".
struct TensorNameParts {
  std::string base;
  std::string suffix;
};
TensorNameParts split_tensor_name(const std::string& name);

}  // namespace lockstep
