#include "engine/model/shard_plan.h"

#include <algorithm>
#include <map>

#include "engine/base/error.h"
#include "engine/model/unused_layers.h"
#include "engine/model/weight_formats.h"

namespace lockstep {
namespace {

// The rule of a tensor by the end of its name.
enum class Rule : uint8_t { rows, columns, gdn_sections };

struct RuleRow {
  const char* suffix;
  Rule rule;
};

constexpr RuleRow kRules[] = {
    {".self_attn.q_proj", Rule::rows},
    {".self_attn.k_proj", Rule::rows},
    {".self_attn.v_proj", Rule::rows},
    {".self_attn.o_proj", Rule::columns},
    {".linear_attn.in_proj_qkv", Rule::gdn_sections},
    {".linear_attn.conv1d", Rule::gdn_sections},
    {".linear_attn.in_proj_z", Rule::rows},
    {".linear_attn.in_proj_a", Rule::rows},
    {".linear_attn.in_proj_b", Rule::rows},
    {".linear_attn.A_log", Rule::rows},
    {".linear_attn.dt_bias", Rule::rows},
    {".linear_attn.out_proj", Rule::columns},
    {".mlp.gate_proj", Rule::rows},
    {".mlp.up_proj", Rule::rows},
    {".mlp.down_proj", Rule::columns},
    {"lm_head", Rule::rows},
};

bool ends_with(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() &&
         text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

bool is_text_tensor(const std::string& base) {
  return base.rfind("model.language_model.", 0) == 0 || base.rfind("mtp.", 0) == 0 ||
         base == "lm_head";
}

// Extent of the logical axis that a rule cuts.
int64_t cut_extent(const ModelConfig& config, const std::string& base) {
  const GdnConfig& gdn = config.gdn;
  const std::pair<const char*, int64_t> extents[] = {
      {"q_proj", int64_t{2} * config.n_heads * config.head_dim},
      {"k_proj", int64_t{1} * config.n_kv_heads * config.head_dim},
      {"v_proj", int64_t{1} * config.n_kv_heads * config.head_dim},
      {"o_proj", int64_t{1} * config.n_heads * config.head_dim},
      {"in_proj_z", gdn.v_width()},
      {"in_proj_a", gdn.n_v_heads},
      {"in_proj_b", gdn.n_v_heads},
      {"A_log", gdn.n_v_heads},
      {"dt_bias", gdn.n_v_heads},
      {"out_proj", gdn.v_width()},
      {"gate_proj", config.intermediate_size},
      {"up_proj", config.intermediate_size},
      {"down_proj", config.intermediate_size},
      {"lm_head", config.vocab_size},
  };
  for (const auto& [suffix, extent] : extents) {
    if (base == suffix || ends_with(base, std::string(".") + suffix)) return extent;
  }
  fail("tensor {}: has no cut", base);
}

std::vector<std::vector<IndexRange>> even_ranges(int64_t extent, int n_ranks) {
  LOCKSTEP_CHECK(extent % n_ranks == 0);
  const int64_t share = extent / n_ranks;
  std::vector<std::vector<IndexRange>> ranges;
  for (int rank = 0; rank < n_ranks; ++rank) ranges.push_back({{rank * share, (rank + 1) * share}});
  return ranges;
}

std::vector<std::vector<IndexRange>> section_ranges(const GdnConfig& gdn, int n_ranks) {
  std::vector<std::vector<IndexRange>> ranges(static_cast<size_t>(n_ranks));
  int64_t start = 0;
  for (const int64_t width : {gdn.k_width(), gdn.k_width(), gdn.v_width()}) {
    const int64_t share = width / n_ranks;
    for (int rank = 0; rank < n_ranks; ++rank) {
      const int64_t begin = start + rank * share;
      ranges[static_cast<size_t>(rank)].push_back({begin, begin + share});
    }
    start += width;
  }
  return ranges;
}

std::vector<std::vector<IndexRange>> in_steps(const std::vector<std::vector<IndexRange>>& logical,
                                              int64_t granule, const std::string& name) {
  std::vector<std::vector<IndexRange>> stored = logical;
  for (auto& rank_ranges : stored) {
    for (IndexRange& range : rank_ranges) {
      if (range.begin % granule != 0 || range.end % granule != 0) {
        fail("tensor {}: the cut [{}, {}) does not fall on multiples of {}", name, range.begin,
             range.end, granule);
      }
      range = {range.begin / granule, range.end / granule};
    }
  }
  return stored;
}

// The stored dimension and granule on which the logical cut of `name` falls.
PartCut stored_cut(const Checkpoint& checkpoint, const std::string& name, const TensorInfo& tensor,
                   SplitKind kind) {
  const auto [base, suffix] = split_tensor_name(name);
  if (suffix.empty() || tensor.shape.size() > 2)
    return {0, 1};  // per-head vectors, conv1d [C, 1, 4]
  MatrixParts parts;
  for (const std::string& other : matrix_suffixes()) {
    if (const TensorInfo* part = checkpoint.find(base + "." + other)) parts[other] = part;
  }
  const MatrixAxis axis = kind == SplitKind::rows ? MatrixAxis::rows : MatrixAxis::columns;
  return find_weight_format(base, parts).cut(parts, suffix, axis);
}

// Every step of the cut dimension goes to exactly one rank.
void check_partition(const ShardRow& row) {
  std::vector<IndexRange> all;
  for (const auto& ranges : row.ranges) all.insert(all.end(), ranges.begin(), ranges.end());
  std::sort(all.begin(), all.end(),
            [](const IndexRange& a, const IndexRange& b) { return a.begin < b.begin; });
  int64_t next = 0;
  for (const IndexRange& range : all) {
    LOCKSTEP_CHECK(range.begin == next);
    next = range.end;
  }
  if (row.axis >= static_cast<int>(row.source->shape.size()) ||
      next != row.source->shape[static_cast<size_t>(row.axis)]) {
    fail("tensor {}: shape {} is not what the config needs", row.name, row.source->shape_text());
  }
}

}  // namespace

TensorNameParts split_tensor_name(const std::string& name) {
  for (const std::string& suffix : matrix_suffixes()) {
    if (ends_with(name, "." + suffix)) {
      return {name.substr(0, name.size() - suffix.size() - 1), suffix};
    }
  }
  return {name, ""};
}

void check_divisible(const ModelConfig& config, int n_ranks) {
  const std::pair<const char*, int> dims[] = {
      {"num_attention_heads", config.n_heads},
      {"num_key_value_heads", config.n_kv_heads},
      {"linear_num_key_heads", config.gdn.n_k_heads},
      {"linear_num_value_heads", config.gdn.n_v_heads},
      {"intermediate_size", config.intermediate_size},
      {"vocab_size", config.vocab_size},
  };
  for (const auto& [name, size] : dims) {
    if (size % n_ranks != 0) fail("--tp {}: {} {} is not a multiple of it", n_ranks, name, size);
  }
}

LogicalSplit logical_split(const ModelConfig& config, const std::string& base, int n_ranks) {
  if (!is_text_tensor(base)) return {};
  for (const RuleRow& row : kRules) {
    if (base != row.suffix && !ends_with(base, row.suffix)) continue;
    if (row.rule == Rule::gdn_sections) {
      return {SplitKind::rows, section_ranges(config.gdn, n_ranks)};
    }
    const SplitKind kind = row.rule == Rule::rows ? SplitKind::rows : SplitKind::columns;
    return {kind, even_ranges(cut_extent(config, base), n_ranks)};
  }
  return {};
}

std::vector<int64_t> ShardRow::local_shape(int rank) const {
  std::vector<int64_t> shape = source->shape;
  if (axis < 0) return shape;
  int64_t size = 0;
  for (const IndexRange& range : ranges[static_cast<size_t>(rank)]) size += range.size();
  shape[static_cast<size_t>(axis)] = size;
  return shape;
}

int64_t ShardRow::local_bytes(int rank) const {
  return TensorInfo{name, source->dtype, local_shape(rank), {}}.n_bytes();
}

PartCut stored_part_cut(const ModelConfig& config, const Checkpoint& checkpoint,
                        const std::string& name, int n_ranks) {
  const LogicalSplit split = logical_split(config, split_tensor_name(name).base, n_ranks);
  if (split.kind == SplitKind::replicated) return {};
  const TensorInfo* tensor = checkpoint.find(name);
  LOCKSTEP_CHECK(tensor != nullptr);
  return stored_cut(checkpoint, name, *tensor, split.kind);
}

ShardPlan make_shard_plan(const ModelConfig& config, const Checkpoint& checkpoint, int n_ranks) {
  check_divisible(config, n_ranks);
  refuse_unused_layers(config, checkpoint);
  ShardPlan plan;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    ShardRow row{name, tensor, -1, {}};
    const PartCut cut = stored_part_cut(config, checkpoint, name, n_ranks);
    if (cut.axis >= 0) {
      const LogicalSplit split = logical_split(config, split_tensor_name(name).base, n_ranks);
      row.axis = cut.axis;
      row.ranges = in_steps(split.ranges, cut.granule, name);
      check_partition(row);
    }
    plan.push_back(std::move(row));
  }
  return plan;
}

}  // namespace lockstep
