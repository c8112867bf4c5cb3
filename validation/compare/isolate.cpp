#include "validation/compare/isolate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/base/error.h"
#include "engine/base/temp_dir.h"
#include "engine/model/safetensors.h"
#include "validation/compare/compare.h"

namespace lockstep {
namespace {

std::string without_decode(const std::string& tap) {
  return tap.starts_with("decode/") ? tap.substr(7) : tap;
}

void write_tensors(const OraclePrompt& prompt, const std::filesystem::path& path) {
  SafetensorsWriter writer;
  for (const auto& [tap, tensor] : prompt.taps) {
    if (!can_inject(tap)) continue;
    writer.add(tap, DType::F32, tensor.shape, std::as_bytes(std::span(tensor.values)));
  }
  writer.write(path);
}

// Relative L2 and limit of every tap that the oracle holds.
std::map<std::string, TapRow, TapOrder> rows_of(const OraclePrompt& oracle,
                                                const EngineResult& result, Precision precision) {
  OraclePrompt judged = oracle;
  std::erase_if(judged.taps, [](const auto& entry) { return !can_inject(entry.first); });
  PromptReport report;
  judge_taps(judged, result.dump, precision, report);
  std::map<std::string, TapRow, TapOrder> rows;
  for (TapRow& row : report.taps) rows[row.tap] = std::move(row);
  return rows;
}

// An engine that takes the field and puts nothing in gives the plain run again.
bool took_effect(const EngineResult& plain, const EngineResult& isolated,
                 const IsolatedPrompt& prompt) {
  const bool wrong_input =
      std::ranges::any_of(prompt.taps, [](const IsolatedTap& tap) { return tap.propagated > 0; });
  if (!wrong_input) return true;
  return !std::ranges::all_of(plain.dump.taps, [&](const auto& entry) {
    const auto other = isolated.dump.taps.find(entry.first);
    return other != isolated.dump.taps.end() && other->second.values == entry.second.values;
  });
}

}  // namespace

bool can_inject(const std::string& tap) {
  const std::string point = without_decode(tap);
  return point == "embed" || point == "final_norm" || point.starts_with("layers.");
}

IsolationJobs isolation_jobs(const Oracle& oracle, const std::filesystem::path& folder) {
  IsolationJobs made;
  for (const OraclePrompt& prompt : oracle.prompts) {
    if (!prompt.in_scope) continue;
    EngineJob job;
    job.name = prompt.name;
    job.ids = prompt.ids;
    job.images = prompt.images;
    job.force_ids = prompt.greedy;
    job.force_ids.resize(std::min<size_t>(job.force_ids.size(), 16));
    job.max_tokens = static_cast<int>(job.force_ids.size());
    for (const auto& [tap, unused] : prompt.taps) {
      if (can_inject(tap)) job.taps.push_back(tap);
    }
    job.tap_positions = oracle.tail;
    made.jobs.push_back(job);
    job.name += ".isolated";
    job.inject = folder / (prompt.name + ".safetensors");
    write_tensors(prompt, job.inject);
    made.jobs.push_back(std::move(job));
  }
  return made;
}

IsolatedPrompt judge_isolation(const OraclePrompt& oracle, const EngineResult& plain,
                               const EngineResult& isolated, Precision precision) {
  IsolatedPrompt prompt;
  prompt.name = oracle.name;
  const auto propagated = rows_of(oracle, plain, precision);
  for (const auto& [tap, row] : rows_of(oracle, isolated, precision)) {
    IsolatedTap one{tap, 0, row.diff.rel_l2, row.limit.rel_l2, row.verdict, false};
    if (const auto at = propagated.find(tap); at != propagated.end()) {
      one.propagated = at->second.diff.rel_l2;
      one.victim = at->second.verdict == Verdict::fail && row.verdict == Verdict::pass;
    }
    prompt.verdict = merge(prompt.verdict, row.verdict);
    if (row.verdict != Verdict::pass && prompt.culprit.empty()) {
      prompt.culprit = tap;
      prompt.reason = row.reason;
    }
    prompt.taps.push_back(std::move(one));
  }
  if (prompt.taps.empty()) {
    prompt.verdict = Verdict::mistrusted;
    prompt.reason = "the oracle holds nothing to put in";
  } else if (!took_effect(plain, isolated, prompt)) {
    prompt.verdict = merge(prompt.verdict, Verdict::mistrusted);
    prompt.reason = "the engine put nothing in: both runs are equal in every bit";
  }
  return prompt;
}

IsolationReport isolate(Oracle oracle, const EngineOptions& options) {
  const Precision precision = parse_precision(options.precision);
  leave_images_out(oracle, options.model);
  const TempDir folder;
  const IsolationJobs made = isolation_jobs(oracle, folder.path());
  IsolationReport report;
  if (made.jobs.empty()) {
    report.verdict = Verdict::mistrusted;
    return report;
  }
  const std::vector<EngineResult> results = run_engine(options, made.jobs);
  size_t next = 0;
  for (const OraclePrompt& prompt : oracle.prompts) {
    if (!prompt.in_scope) continue;
    report.prompts.push_back(judge_isolation(prompt, results[next], results[next + 1], precision));
    next += 2;
    report.verdict = merge(report.verdict, report.prompts.back().verdict);
  }
  return report;
}

}  // namespace lockstep
