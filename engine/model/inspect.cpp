#include "engine/model/inspect.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/model/quant_claims.h"
#include "engine/model/shard_plan.h"
#include "engine/model/slow_formats.h"
#include "engine/model/weight_formats.h"

namespace lockstep {
namespace {

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// Parts of one matrix, or one small tensor.
struct Item {
  std::string base;
  MatrixParts parts;
  std::string format;
  int64_t n_bytes = 0;
  std::vector<int64_t> rank_bytes;
};

bool is_matrix(const MatrixParts& parts) {
  const auto weight = parts.find("weight");
  return weight == parts.end() || weight->second->shape.size() == 2;
}

std::map<std::string, Item> collect_items(const Checkpoint& checkpoint, const ShardPlan& plan,
                                          int n_ranks) {
  std::map<std::string, Item> items;
  for (const ShardRow& row : plan) {
    const auto [base, suffix] = split_tensor_name(row.name);
    Item& item = items[base];
    item.base = base;
    item.parts[suffix] = checkpoint.find(row.name);
    item.n_bytes += row.source->n_bytes();
    item.rank_bytes.resize(static_cast<size_t>(n_ranks));
    for (int rank = 0; rank < n_ranks; ++rank) {
      item.rank_bytes[static_cast<size_t>(rank)] += row.local_bytes(rank);
    }
  }
  for (auto& [base, item] : items) {
    if (is_matrix(item.parts) && item.parts.count("") == 0) {
      item.format = find_weight_format(base, item.parts).name;
      if (item.format == "plain") item.format = dtype_name(item.parts.at("weight")->dtype);
    } else {
      item.format = dtype_name(item.parts.begin()->second->dtype);
    }
  }
  return items;
}

void add_to_rows(const Item& item,
                 std::map<std::pair<std::string, std::string>, InspectRow>& rows) {
  const std::string group = tensor_class(item.base);
  InspectRow& row = rows[{group, item.format}];
  row.tensor_class = group;
  row.format = item.format;
  ++row.n_matrices;
  row.n_bytes += item.n_bytes;
  row.rank_bytes.resize(item.rank_bytes.size());
  for (size_t rank = 0; rank < item.rank_bytes.size(); ++rank) {
    row.rank_bytes[rank] += item.rank_bytes[rank];
  }
}

void note_missing_parts(const ModelConfig& config, InspectReport& report) {
  if (config.n_mtp_layers > 0 && !report.has_mtp) {
    report.oddities.push_back(
        "the config has an MTP layer, the checkpoint does not (dropped when it was exported?): no "
        "speculation");
  }
  if (config.n_mtp_layers == 0 && report.has_mtp) {
    report.oddities.push_back("MTP tensors are there, the config does not mention them");
  }
  if (config.vision && !report.has_vision) {
    report.oddities.push_back("the config has a vision tower, the checkpoint does not: text only");
  }
}

void note_ignored_parts(const std::map<std::string, Item>& items, InspectReport& report) {
  std::set<std::string> with_input_scale;
  for (const auto& [base, item] : items) {
    if (item.parts.count("input_scale") != 0 || item.parts.count("input_global_scale") != 0) {
      with_input_scale.insert(base);
    }
  }
  if (!with_input_scale.empty()) {
    report.oddities.push_back(fmt::format(
        "{} matrices carry activation scales ({} ...): ignored, activations are not quantised",
        with_input_scale.size(), *with_input_scale.begin()));
  }
}

// Claims that the tensors contradict, one line for each (claim, truth) pair.
void note_lies(const std::map<std::string, Item>& items, const QuantClaims& claims,
               InspectReport& report) {
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> lies;
  for (const auto& [base, item] : items) {
    if (!is_matrix(item.parts) || item.parts.count("") != 0) continue;
    const std::string claimed = claims.family_of(base);
    const std::string stored = format_family(item.format);
    if (!claimed.empty() && claimed != stored) lies[{claimed, item.format}].push_back(base);
  }
  for (const auto& [pair, bases] : lies) {
    report.oddities.push_back(fmt::format(
        "the config says {} for {} matrices that are stored as {} ({}{}): the tensors decide",
        pair.first, bases.size(), pair.second, bases.front(), bases.size() > 1 ? " ..." : ""));
  }
}

}  // namespace

std::string tensor_class(const std::string& name) {
  if (name.rfind("mtp.", 0) == 0) return "mtp";
  if (name.rfind("model.visual.", 0) == 0) return "vision";
  if (name.rfind("lm_head", 0) == 0) return "lm_head";
  if (contains(name, "embed_tokens")) return "embedding";
  if (contains(name, "norm")) return "norms";
  if (contains(name, ".self_attn.")) return "attention";
  if (contains(name, ".linear_attn.")) return "gdn";
  if (contains(name, ".mlp.")) return "mlp";
  return "other";
}

InspectReport inspect_checkpoint(const ModelConfig& config, const Checkpoint& checkpoint,
                                 int n_ranks, const std::string& config_json) {
  InspectReport report;
  report.n_tensors = static_cast<int64_t>(checkpoint.tensors().size());
  report.n_bytes = checkpoint.n_bytes();
  const ShardPlan plan = make_shard_plan(config, checkpoint, n_ranks);
  const auto items = collect_items(checkpoint, plan, n_ranks);
  std::map<std::pair<std::string, std::string>, InspectRow> rows;
  for (const auto& [base, item] : items) {
    add_to_rows(item, rows);
    report.has_mtp = report.has_mtp || tensor_class(base) == "mtp";
    report.has_vision = report.has_vision || tensor_class(base) == "vision";
    if (tensor_class(base) == "other") {
      report.oddities.push_back("no part of the model uses " + base);
    }
  }
  for (auto& [key, row] : rows) report.rows.push_back(std::move(row));
  note_missing_parts(config, report);
  note_ignored_parts(items, report);
  note_lies(items, parse_quant_claims(config_json), report);
  return report;
}

void note_slow_formats(const std::vector<std::string>& cards, InspectReport& report) {
  std::set<std::string> lines;
  for (const SlowFormat& slow : slow_formats()) {
    for (const std::string& card : cards) {
      if (!contains(card, slow.card)) continue;
      for (const InspectRow& row : report.rows) {
        if (format_family(row.format) == slow.family) {
          lines.insert(fmt::format("{} on {}: {}", row.format, card, slow.note));
        }
      }
    }
  }
  report.oddities.insert(report.oddities.end(), lines.begin(), lines.end());
}

}  // namespace lockstep
