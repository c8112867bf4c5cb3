#include "faultinject/campaign.h"

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr auto kTimeout = std::chrono::minutes(5);

// The first bad thing of the first prompt that failed.
Finding judge_compare(const CatalogueRow& row, const CampaignOptions& options, bool plant) {
  std::vector<std::string> argv = {(options.programs / "lockstep-compare").string(),
                                   "--model=" + options.model.string(),
                                   "--oracle=" + options.oracle.string(),
                                   "--tp=" + std::to_string(row.tp),
                                   "--mtp=" + std::to_string(row.mtp),
                                   "--prefill-grid=" + std::to_string(row.prefill_grid),
                                   "--precision=fp32",
                                   "--json"};
  if (plant) argv.push_back("--fault=" + row.fault);
  const ProcessResult process = run_process(argv, kTimeout);
  const Json json = Json::parse(process.stdout_text, nullptr, false);
  if (json.is_discarded()) {
    fail_with(ExitCode::could_not_judge, "compare gave no report: {}", process.stderr_text);
  }
  if (json["verdict"] == "ERROR") {
    fail_with(ExitCode::could_not_judge, "compare could not judge: {}", process.stderr_text);
  }
  Finding finding;
  finding.caught = json["verdict"] == "FAIL";
  for (const Json& prompt : json["prompts"]) {
    if (prompt["verdict"] != "FAIL") continue;
    finding.found = prompt["first_bad"].get<std::string>();
    break;
  }
  return finding;
}

ProcessResult generate(const std::string& jobs, const std::filesystem::path& folder,
                       const CatalogueRow& row, const CampaignOptions& options, int mtp,
                       bool plant) {
  const auto file = folder / "jobs.jsonl";
  write_file_atomically(file, jobs);
  std::vector<std::string> argv = {(options.programs / "lockstep-generate").string(),
                                   "--model=" + options.model.string(),
                                   "--jobs=" + file.string(),
                                   "--out=" + folder.string(),
                                   "--tp=" + std::to_string(row.tp),
                                   "--mtp=" + std::to_string(mtp),
                                   "--slots=1",
                                   "--prefill-grid=64"};
  if (plant) argv.push_back("--fault=" + row.fault);
  return run_process(argv, kTimeout);
}

// Results of a job file, one JSON object a job.
std::vector<Json> run_jobs(const std::string& jobs, const CatalogueRow& row,
                           const CampaignOptions& options, int mtp, bool plant) {
  const TempDir folder;
  const ProcessResult process = generate(jobs, folder.path(), row, options, mtp, plant);
  if (process.exit_code != 0) {
    fail_with(ExitCode::could_not_judge, "generate ended with {}: {}", process.exit_code,
              process.stderr_text);
  }
  std::istringstream lines(read_text_file(folder.path() / "results.jsonl"));
  std::vector<Json> results;
  for (std::string line; std::getline(lines, line);) results.push_back(Json::parse(line));
  return results;
}

const char* const kPrompt =
    "def load_page(items, limit=10):\n    total = 0\n    for index, item in enumerate(items):\n"
    "        if index >= limit:\n            break\n        total += item * 3\n    return total\n\n"
    "def merge_record(items, limit=20):\n    total = 0\n    for index, item in enumerate(items):\n"
    "        if index >= limit:\n            break\n        total += item * 7\n    return total\n\n"
    "def scan_token(items, limit=30):\n    total = 0\n    for index, item in enumerate(items):\n";

Finding judge_depths(const CatalogueRow& row, const CampaignOptions& options, bool plant) {
  std::string jobs;
  for (int i = 0; i < 8; ++i) {
    const Json job = {{"name", "sampled-" + std::to_string(i)},
                      {"prompt", kPrompt},
                      {"max_tokens", 32},
                      {"temperature", 0.9},
                      {"presence_penalty", 1.5},
                      {"seed", 1000 + i},
                      {"ignore_eos", true}};
    jobs += job.dump() + "\n";
  }
  const auto plain = run_jobs(jobs, row, options, 0, false);
  const auto deep = run_jobs(jobs, row, options, 3, plant);
  Finding finding;
  for (size_t i = 0; i < plain.size(); ++i) finding.caught |= plain[i]["ids"] != deep[i]["ids"];
  if (finding.caught) finding.found = "sampled text differs between k = 0 and k = 3";
  return finding;
}

Finding judge_cache(const CatalogueRow& row, const CampaignOptions& options, bool plant) {
  std::string jobs;
  for (const char* name : {"first", "second"}) {
    // Twice the text: a hit must share more than one page for a page table to be wrong.
    const Json job = {{"name", name},    {"prompt", std::string(kPrompt) + kPrompt},
                      {"max_tokens", 8}, {"temperature", 0},
                      {"logits", 4},     {"ignore_eos", true}};
    jobs += job.dump() + "\n";
  }
  const auto results = run_jobs(jobs, row, options, 0, plant);
  if (results[1]["cache"]["hit_tokens"] == 0) {
    fail_with(ExitCode::could_not_judge, "the second run of the prompt did not hit the cache");
  }
  Finding finding;
  finding.caught = results[0]["logits"] != results[1]["logits"];
  if (finding.caught) finding.found = "second run of the prompt has other logits";
  return finding;
}

// The ranks must halt; what the line says of the field, or of the operations at which they are, is
// what was found.
Finding judge_agreement(const CatalogueRow& row, const CampaignOptions& options, bool plant) {
  const Json job = {{"name", "job"}, {"prompt", kPrompt}, {"max_tokens", 16}, {"ignore_eos", true}};
  const TempDir folder;
  const ProcessResult process =
      generate(job.dump() + "\n", folder.path(), row, options, row.mtp, plant);
  Finding finding;
  constexpr std::string_view kFailure = "TP2 LOCKSTEP FAILURE ";
  const size_t line = process.stderr_text.find(kFailure);
  const bool halted = process.exit_code == static_cast<int>(ExitCode::lockstep_failure) &&
                      line != std::string::npos;
  if (!halted && process.exit_code != 0) {
    fail_with(ExitCode::could_not_judge, "generate ended with {}: {}", process.exit_code,
              process.stderr_text);
  }
  finding.caught = halted;
  if (!halted) return finding;
  const size_t begin = line + kFailure.size();
  const std::string words =
      process.stderr_text.substr(begin, process.stderr_text.find('\n', begin) - begin);
  const size_t field = words.find("field ");
  finding.found = words.substr(field == std::string::npos ? 0 : field);
  return finding;
}

}  // namespace

Finding run_row(const CatalogueRow& row, const CampaignOptions& options, bool plant) {
  Finding finding;
  switch (row.detector) {
    case Detector::compare:
      finding = judge_compare(row, options, plant);
      break;
    case Detector::depths:
      finding = judge_depths(row, options, plant);
      break;
    case Detector::cache:
      finding = judge_cache(row, options, plant);
      break;
    case Detector::agreement:
      finding = judge_agreement(row, options, plant);
      break;
  }
  finding.named = finding.caught && finding.found.starts_with(row.names);
  return finding;
}

}  // namespace lockstep
