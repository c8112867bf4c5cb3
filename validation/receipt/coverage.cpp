#include "validation/receipt/coverage.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr size_t kFilesNamed = 5;
constexpr size_t kUnitsNamed = 8;

// The newest receipt that counts; what was left out goes to `reasons`.
std::optional<ReceiptSummary> newest_receipt(const std::string& policy, const fs::path& folder,
                                             std::vector<std::string>& reasons) {
  std::vector<fs::path> paths;
  if (fs::is_directory(folder)) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".json") paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::optional<ReceiptSummary> newest;
  for (const fs::path& path : paths) {
    try {
      ReceiptSummary receipt = read_receipt(path);
      if (receipt.policy != policy) continue;
      if (receipt.blames_all || !receipt.complete) {
        reasons.push_back(fmt::format("{}: does not count: {}", receipt.file,
                                      receipt.complete ? receipt.verdict : "not a whole gate"));
        continue;
      }
      if (!newest || receipt.started >= newest->started) newest = std::move(receipt);
    } catch (const Error& error) {
      reasons.emplace_back(error.what());
    }
  }
  return newest;
}

// Why the receipt does not cover the unit; empty when it does.
std::string objection(const std::string& unit, const FileDigests& now,
                      const std::optional<ReceiptSummary>& receipt) {
  if (!receipt || !receipt->units.contains(unit)) return "no receipt covers it";
  const auto blamed = receipt->blamed.find(unit);
  if (blamed != receipt->blamed.end()) return "in the receipt " + blamed->second;
  return changed_files(receipt->units.at(unit), now);
}

// Op -> how what the receipt says a card answered differs from what this machine computes.
std::map<std::string, std::string> recomputed(const std::optional<ReceiptSummary>& receipt,
                                              const fs::path& program) {
  if (!receipt || program.empty()) return {};
  const ExactReport host = run_exact(program, "cpu", exact_seeds(receipt->units));
  return exact_differences(receipt->exact, host.outputs);
}

UnitCoverage unit_coverage(const std::string& unit, const FileDigests& now,
                           const std::string& difference,
                           const std::optional<ReceiptSummary>& receipt,
                           const CoverageInputs& inputs) {
  UnitCoverage coverage{unit, Verdict::pass, objection(unit, now, receipt)};
  if (coverage.detail.empty()) coverage.detail = difference;
  if (coverage.detail.empty()) {
    coverage.detail = fmt::format("{} files as in the receipt", now.size());
    return coverage;
  }
  coverage.verdict = Verdict::fail;
  if (const Waiver* waiver = waiver_for_op(inputs.waivers, unit, inputs.today)) {
    coverage.verdict = Verdict::mistrusted;
    coverage.detail +=
        fmt::format("; waived by {} until {}: {}", waiver->owner, waiver->expires, waiver->reason);
  }
  return coverage;
}

}  // namespace

std::vector<std::string> required_policies(const fs::path& path) {
  const Json json = Json::parse(read_text_file(path), nullptr, false);
  if (!json.is_object() || json.value("format", Json()) != Json("lockstep-receipt-policy") ||
      json.value("format_version", Json()) != Json(1) || !json.contains("required") ||
      !json["required"].is_array()) {
    fail("{}: is no receipt policy of version 1", path.string());
  }
  std::vector<std::string> policies;
  for (const Json& policy : json["required"]) {
    if (!policy.is_string()) fail("{}: required must be a list of names", path.string());
    policies.push_back(policy.get<std::string>());
    policy_scope(policies.back());
  }
  return policies;
}

SourceScope policy_scope(const std::string& policy) {
  if (policy == "gpu" || policy == "release") return SourceScope::cuda_ops;
  if (policy == "quick" || policy == "full") return SourceScope::engine;
  fail_with(ExitCode::usage, "policy {}: no such policy has receipts: quick, full, gpu, release",
            policy);
}

PolicyCoverage policy_coverage(const std::string& policy, const CoverageInputs& inputs) {
  PolicyCoverage coverage;
  coverage.policy = policy;
  const auto receipt = newest_receipt(policy, inputs.receipts, coverage.reasons);
  if (receipt) coverage.receipt = receipt->file;
  const SourceUnits now = source_units(inputs.source_root, policy_scope(policy));
  const bool cuda = policy_scope(policy) == SourceScope::cuda_ops;
  const auto differences = recomputed(receipt, cuda ? inputs.exact_program : fs::path());
  for (const auto& [unit, files] : now) {
    const auto difference = differences.find(unit);
    coverage.units.push_back(unit_coverage(
        unit, files, difference == differences.end() ? "" : difference->second, receipt, inputs));
    coverage.verdict = merge(coverage.verdict, coverage.units.back().verdict);
  }
  if (now.empty()) {
    coverage.verdict = merge(coverage.verdict, Verdict::mistrusted);
    coverage.reasons.push_back(
        fmt::format("policy {}: the tree has no sources that its receipts could cover", policy));
  } else if (!receipt) {
    coverage.reasons.push_back(
        fmt::format("policy {}: no receipt in {}; 'lockstep gate --policy {} --receipt {}' makes "
                    "one",
                    policy, inputs.receipts.string(), policy, inputs.receipts.string()));
  }
  return coverage;
}

std::string coverage_words(const PolicyCoverage& coverage) {
  if (coverage.units.empty()) return "nothing in these sources needs one";
  if (coverage.receipt.empty()) return "there is none";
  const auto count = [&](Verdict verdict) {
    return std::count_if(coverage.units.begin(), coverage.units.end(),
                         [&](const UnitCoverage& unit) { return unit.verdict == verdict; });
  };
  std::string text = fmt::format("{} covers {} of {} ops as their sources are now",
                                 coverage.receipt, count(Verdict::pass), coverage.units.size());
  if (const auto waived = count(Verdict::mistrusted); waived > 0) {
    text += fmt::format(", {} {} waived", waived, waived == 1 ? "is" : "are");
  }
  size_t named = 0;
  for (const UnitCoverage& unit : coverage.units) {
    if (unit.verdict != Verdict::fail || ++named > kUnitsNamed) continue;
    text += (named == 1 ? "; not: " : ", ") + unit.unit;
  }
  if (named > kUnitsNamed) text += fmt::format(" and {} more", named - kUnitsNamed);
  return text;
}

std::string changed_files(const FileDigests& before, const FileDigests& now) {
  std::vector<std::string> changes;
  for (const auto& [path, digest] : now) {
    const auto old = before.find(path);
    if (old == before.end()) {
      changes.push_back(path + " is new");
    } else if (old->second != digest) {
      changes.push_back(path + " changed");
    }
  }
  for (const auto& [path, unused] : before) {
    if (!now.contains(path)) changes.push_back(path + " is gone");
  }
  std::string text;
  for (size_t i = 0; i < std::min(changes.size(), kFilesNamed); ++i) {
    text += (text.empty() ? "" : ", ") + changes[i];
  }
  if (changes.size() > kFilesNamed) {
    text += fmt::format(" and {} more", changes.size() - kFilesNamed);
  }
  return text;
}

}  // namespace lockstep
