#include "validation/engine_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr size_t kMaxResultBytes = size_t{1} << 30;

template <typename... Args>
[[noreturn]] void bad_result(fmt::format_string<Args...> format, Args&&... args) {
  fail_with(ExitCode::could_not_judge, format, std::forward<Args>(args)...);
}

std::string job_lines(const std::vector<EngineJob>& jobs) {
  std::string text;
  for (const EngineJob& job : jobs) {
    Json line = {{"name", job.name},
                 {"ids", job.ids},
                 {"max_tokens", job.max_tokens},
                 {"temperature", job.temperature},
                 {"ignore_eos", true},
                 {"logits", job.n_logits},
                 {"drafts", true}};
    if (job.temperature > 0) {
      line["seed"] = job.seed;
      line["presence_penalty"] = job.presence_penalty;
    }
    if (!job.force_ids.empty()) line["force_ids"] = job.force_ids;
    for (const fs::path& image : job.images) line["images"].push_back(fs::absolute(image).string());
    if (!job.taps.empty()) line["taps"] = {{"names", job.taps}, {"last", job.tap_positions}};
    if (!job.inject.empty()) line["inject"] = {{"file", fs::absolute(job.inject).string()}};
    text += line.dump() + "\n";
  }
  return text;
}

const Json& member(const Json& object, const char* key, const std::string& where) {
  if (!object.is_object() || !object.contains(key)) bad_result("{}: \"{}\" is missing", where, key);
  return object[key];
}

const Json& list(const Json& object, const char* key, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_array()) bad_result("{}: \"{}\" must be a list", where, key);
  return value;
}

std::vector<int32_t> token_list(const Json& object, const char* key, const std::string& where) {
  std::vector<int32_t> ids;
  for (const Json& value : list(object, key, where)) {
    const bool valid = value.is_number_unsigned() && value.get<uint64_t>() <= INT32_MAX;
    if (!valid) bad_result("{}: \"{}\" holds something that is no token id", where, key);
    ids.push_back(value.get<int32_t>());
  }
  return ids;
}

// JSON has no NaN: an engine that computed one writes null, and the judgement must see it.
double number_or_nan(const Json& value) {
  return value.is_number() ? value.get<double>() : std::nan("");
}

StepLogits parse_step(const Json& json, const std::string& where) {
  StepLogits step;
  step.ids = token_list(json, "ids", where);
  for (const Json& value : list(json, "values", where)) step.values.push_back(number_or_nan(value));
  step.log_sum_exp = number_or_nan(member(json, "lse", where));
  if (step.ids.size() != step.values.size() || step.ids.size() < 2) {
    bad_result("{}: a step's logits need at least two ids and as many values", where);
  }
  return step;
}

EngineResult parse_result(const std::string& line, const EngineJob& job, const std::string& file) {
  const std::string where = file + ": job " + job.name;
  const Json json = Json::parse(line, nullptr, false);
  if (json.is_discarded() || !json.is_object()) bad_result("{}: is not a JSON object", where);
  if (json.contains("error") && !json["error"].is_null()) {
    const Json& error = json["error"];
    bad_result("job {}: {}", job.name, error.is_string() ? error.get<std::string>() : error.dump());
  }
  if (member(json, "name", where) != Json(job.name)) {
    bad_result("{}: the engine answered job {} instead", where, json["name"].dump());
  }
  EngineResult result;
  result.name = job.name;
  result.ids = token_list(json, "ids", where);
  if (json.contains("text") && json["text"].is_string()) result.text = json["text"];
  if (json.contains("mtp") && json["mtp"].is_object() && json["mtp"].contains("draft_rounds")) {
    const Json& mtp = json["mtp"];
    result.drafts_accepted = member(mtp, "accepted", where).get<int64_t>();
    result.drafted = mtp.value("drafted", int64_t{0});
    for (const Json& round : list(mtp, "draft_rounds", where)) {
      result.draft_rounds.push_back(
          {member(round, "step", where).get<int64_t>(), token_list(round, "drafts", where)});
    }
  }
  for (const Json& step : list(json, "logits", where)) {
    result.logits.push_back(parse_step(step, where));
  }
  if (result.logits.size() != result.ids.size()) {
    bad_result("{}: {} tokens but logits of {} steps", where, result.ids.size(),
               result.logits.size());
  }
  if (member(json, "prompt_tokens", where) != Json(job.ids.size())) {
    bad_result("{}: the engine read {} prompt tokens, the job has {}", where,
               json["prompt_tokens"].dump(), job.ids.size());
  }
  if (json.contains("cache") && json["cache"].is_object()) {
    const Json& hit = member(json["cache"], "hit_tokens", where);
    if (!hit.is_number_unsigned()) bad_result("{}: hit_tokens must be a number", where);
    result.cache_hit_tokens = hit.get<int64_t>();
  }
  if (json.contains("rope_delta") && json["rope_delta"].is_number_integer()) {
    result.rope_delta = json["rope_delta"].get<int64_t>();
  }
  return result;
}

std::vector<EngineResult> read_results(const fs::path& path, const std::vector<EngineJob>& jobs) {
  const std::string file = path.string();
  std::istringstream lines(read_text_file(file, kMaxResultBytes));
  std::vector<EngineResult> results;
  std::string line;
  while (std::getline(lines, line)) {
    if (line.empty()) continue;
    if (results.size() == jobs.size()) bad_result("{}: more lines than jobs", file);
    results.push_back(parse_result(line, jobs[results.size()], file));
  }
  if (results.size() != jobs.size()) {
    bad_result("{}: {} results for {} jobs", file, results.size(), jobs.size());
  }
  return results;
}

bool same_numbers(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

bool same_bits(const EngineResult& a, const EngineResult& b) {
  return a.ids == b.ids && std::ranges::equal(a.logits, b.logits, [](const auto& x, const auto& y) {
           return x.ids == y.ids && std::ranges::equal(x.values, y.values, same_numbers) &&
                  same_numbers(x.log_sum_exp, y.log_sum_exp);
         });
}

// Both ranks sampled by themselves: tokens and logits must have the same bits.
void compare_rank_results(const fs::path& out, const std::vector<EngineJob>& jobs,
                          std::vector<EngineResult>& results) {
  const std::vector<EngineResult> other = read_results(out / "results.rank1.jsonl", jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!same_bits(results[i], other[i])) {
      results[i].dump.rank_differences.emplace_back(kResultsTap);
    }
  }
}

std::vector<EngineResult> run_in(const fs::path& folder, const EngineOptions& options,
                                 const std::vector<EngineJob>& jobs) {
  const fs::path job_file = folder / "jobs.jsonl";
  const fs::path out = folder / "out";
  write_file_atomically(job_file, job_lines(jobs));
  fs::create_directory(out);
  run_job_program(options.command(), options.timeout, job_file, out);
  std::vector<EngineResult> results = read_results(out / kResultsFile, jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].taps.empty()) continue;
    std::vector<fs::path> files;
    for (int rank = 0; rank < options.tp; ++rank) {
      files.push_back(out / fmt::format("{}.rank{}.safetensors", jobs[i].name, rank));
    }
    results[i].dump = read_tap_dump(files);
  }
  if (options.tp == 2) compare_rank_results(out, jobs, results);
  return results;
}

}  // namespace

std::vector<std::string> EngineOptions::command() const {
  if (!argv.empty()) return argv;
  const fs::path program = engine.empty() ? sibling_program("lockstep-generate") : engine;
  std::vector<std::string> words = {program.string(), "--model",          model.string(),
                                    "--tp",           std::to_string(tp), "--precision",
                                    precision,        "--backend",        backend};
  const auto add = [&words](const char* flag, const std::string& value) {
    words.insert(words.end(), {flag, value});
  };
  if (prefill_grid) add("--prefill-grid", std::to_string(*prefill_grid));
  if (!fault.empty()) add("--fault", fault);
  add("--mtp", std::to_string(mtp));
  if (!transport.empty()) add("--transport", transport);
  if (!kv.empty()) add("--kv", kv);
  if (!shards.empty()) add("--shards", shards.string());
  if (slots) add("--slots", std::to_string(*slots));
  if (threads) add("--threads", std::to_string(*threads));
  if (!kernels.empty()) add("--kernels", kernels);
  if (!devices.empty()) add("--devices", devices);
  if (share_device) words.push_back("--share-device");
  if (!cpu_target.empty()) add("--cpu-target", cpu_target);
  if (prefix_cache_bytes) add("--prefix-cache", std::to_string(*prefix_cache_bytes));
  return words;
}

std::string failure_reason(const std::string& stderr_text) {
  std::istringstream lines(stderr_text);
  std::string line;
  std::string signed_line;
  std::string last;
  while (std::getline(lines, line)) {
    if (line.starts_with("TP2 LOCKSTEP FAILURE")) return line;
    if (signed_line.empty() && line.starts_with("lockstep-")) signed_line = line;
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  }
  return signed_line.empty() ? last : signed_line;
}

void run_job_program(std::vector<std::string> argv, std::chrono::seconds timeout,
                     const fs::path& jobs, const fs::path& out) {
  argv.insert(argv.end(), {"--jobs", jobs.string(), "--out", out.string()});
  const ProcessResult result = run_process(argv, timeout);
  if (result.timed_out) bad_result("{}: did not end within {} s", argv[0], timeout.count());
  if (result.exit_code != 0) {
    const std::string words = failure_reason(result.stderr_text);
    bad_result("the engine ended with exit code {}: {}", result.exit_code,
               words.empty() ? argv[0] + " printed no reason" : words);
  }
  if (fs::exists(out / kResultsFile)) return;
  bad_result(
      "the engine ended with exit code 0 without writing its results: {} must take --jobs FILE and "
      "leave {} in --out DIR, as lockstep-generate does",
      argv[0], kResultsFile);
}

std::vector<EngineResult> run_engine(const EngineOptions& options,
                                     const std::vector<EngineJob>& jobs) {
  const TempDir folder;
  try {
    return run_in(folder.path(), options, jobs);
  } catch (const Error& error) {
    throw Error(error.what(), ExitCode::could_not_judge);
  }
}

}  // namespace lockstep
