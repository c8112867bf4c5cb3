#include "validation/gate/receipt.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "build_identity.h"
#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "validation/compare/report_json.h"
#include "validation/gate/gpu_facts.h"
#include "validation/receipt/baked_sources.h"
#include "validation/receipt/coverage.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;  // sorted keys: the canonical order
namespace fs = std::filesystem;

void update_with_file(Digest128& digest, const fs::path& path) {
  digest.update(path.filename().string() + "\n");
  if (fs::file_size(path) > 0) digest.update(MappedFile(path).bytes());
}

std::string digest_of_files(std::vector<fs::path> paths) {
  std::sort(paths.begin(), paths.end());
  Digest128 digest;
  for (const fs::path& path : paths) update_with_file(digest, path);
  return digest.hex();
}

std::string oracle_digest(const fs::path& prefix) {
  std::vector<fs::path> paths;
  for (const char* suffix : {".json", ".safetensors"}) {
    const fs::path path = prefix.string() + suffix;
    if (fs::is_regular_file(path)) paths.push_back(path);
  }
  return digest_of_files(paths);
}

std::string cpu_name() {
  std::error_code ignored;
  if (!fs::exists("/proc/cpuinfo", ignored)) return "";
  std::istringstream lines(read_text_file("/proc/cpuinfo"));
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with("model name"))
      return line.substr(std::min(line.find(':') + 2, line.size()));
  }
  return "";
}

// Of each absolute path in a command its last part: a receipt is kept in a repository, where no
// folder of one machine belongs, and digests say what was read.
std::string without_folders(const std::string& command) {
  std::istringstream words(command);
  std::string out, word;
  while (std::getline(words, word, ' ')) {
    // Without a path: 0, where no slash is.
    const size_t path = word.starts_with('/') ? 0 : word.find("=/") + 1;
    if (path + 1 < word.size() && word[path] == '/') {
      word.erase(path, word.find_last_of('/', word.size() - 2) + 1 - path);
    }
    out += (out.empty() ? "" : " ") + word;
  }
  return out;
}

Json input_json(const fs::path& path, const std::string& digest) {
  return {{"path", without_folders(path.string())}, {"digest", digest}};
}

Json steps_json(const GateReport& report) {
  Json steps = Json::array();
  for (const GateStep& step : report.steps) {
    steps.push_back({{"id", step.id},
                     {"title", step.title},
                     {"verdict", verdict_name(step.verdict)},
                     {"detail", step.detail},
                     {"repro", without_folders(step.repro)},
                     {"required", step.required},
                     {"proven", step.proven},
                     {"ops", step.ops},
                     {"waiver", step.waiver}});
  }
  return steps;
}

Json mutation_json(const MutationReport& mutation) {
  return {{"total", mutation.total},
          {"killed", mutation.killed},
          {"equivalent", mutation.equivalent},
          {"survivors", mutation.survivors},
          {"score", mutation.score()}};
}

// Empty for a policy of the user's own, which no receipt rule speaks of. Without a source tree: the
// sources as they were when the programs were built.
Json sources_json(const GateOptions& options) {
  const auto built_in = built_in_policies();
  const bool known =
      std::find(built_in.begin(), built_in.end(), options.policy.name) != built_in.end();
  if (!known) return Json::object();
  const SourceScope scope = policy_scope(options.policy.name);
  Json units = Json::object();
  for (const auto& [unit, files] : known_units(options.source, scope)) {
    units[unit] = {{"digest", unit_digest(files)}, {"files", files}};
  }
  if (units.empty()) return Json::object();
  return {{"scope", scope_name(scope)}, {"units", units}};
}

Json gpus_json() {
  Json gpus = Json::array();
  for (const GpuFacts& gpu : installed_gpus()) {
    gpus.push_back({{"model", gpu.model}, {"uuid", gpu.uuid}});
  }
  return gpus;
}

Json comparisons_json(const GateReport& report) {
  Json comparisons = Json::array();
  for (const GateComparison& comparison : report.comparisons) {
    comparisons.push_back({{"title", comparison.title},
                           {"precision", comparison.precision == Precision::fp32 ? "fp32" : "bf16"},
                           {"report", Json::parse(report_json(comparison.report, false))}});
  }
  return comparisons;
}

// What differs between two runs of one build on one input.
Json host_json(const GateReport& report, const ReceiptFacts& facts) {
  Json seconds = Json::object();
  for (const GateStep& step : report.steps) seconds[step.id] = step.seconds;
  return {{"cpu", cpu_name()},        {"cores", std::thread::hardware_concurrency()},
          {"gpus", gpus_json()},      {"driver", driver_version()},
          {"started", facts.started}, {"seconds", facts.seconds},
          {"step_seconds", seconds}};
}

}  // namespace

std::string make_receipt(const GateReport& report, const ReceiptFacts& facts) {
  Json runs = Json::object();
  for (const auto& [run, digest] : report.run_digests) runs[run] = digest;
  const GateOptions& options = facts.options;
  Json receipt = {
      {"format", kReceiptFormat},
      {"format_version", kReceiptVersion},
      {"command", without_folders(facts.command)},
      {"policy", options.policy.name},
      {"complete", report.complete},
      {"verdict", verdict_name(report.verdict)},
      {"build",
       {{"version", kBuildVersion},
        {"commit", kBuildCommit},
        {"dirty", kBuildDirty},
        {"compiler", __VERSION__},
        {"flags", kBuildFlags},
        {"programs_digest", programs_digest()}}},
      {"model", input_json(options.model, folder_digest(options.model))},
      {"oracle", input_json(options.oracle, oracle_digest(options.oracle))},
      {"fault", options.fault},
      {"sources", sources_json(options)},
      {"steps", steps_json(report)},
      {"mutation", mutation_json(report.mutation)},
      {"proven", {{"checks", report.steps.size()}, {"able_to_fail", report.n_proven()}}},
      {"ops", Json::parse(ops_json(report.ops))},
      {"runs", runs},
      {"comparisons", comparisons_json(report)},
      {"not_checked", report.not_checked},
      {"machine", Json::parse(report.machine.to_json())},
      {"host", host_json(report, facts)}};
  // Over what a reader will see: invalid UTF-8 in a message is replaced before the digest is taken.
  return sealed_receipt(receipt.dump(-1, ' ', false, Json::error_handler_t::replace),
                        facts.key_file);
}

std::string folder_digest(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  return digest_of_files(paths);
}

std::string programs_digest() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(sibling_program("").parent_path())) {
    const std::string name = entry.path().filename().string();
    const bool ours = name == "lockstep" || name.starts_with("lockstep-");
    if (ours && entry.is_regular_file()) paths.push_back(entry.path());
  }
  return digest_of_files(paths);
}

}  // namespace lockstep
