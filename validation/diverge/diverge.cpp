#include "validation/diverge/diverge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/json_problem.h"
#include "engine/base/mapped_file.h"
#include "engine/base/temp_dir.h"
#include "engine/model/safetensors.h"
#include "validation/compare/isolate.h"
#include "validation/compare/logit_geometry.h"
#include "validation/diverge/drift_class.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxJsonBytes = size_t{1} << 30;

// Nats by which a pair of logits moves when the final norm errs by its own length.
class LogitScale {
 public:
  explicit LogitScale(const std::filesystem::path& checkpoint) {
    if (checkpoint.empty()) return;
    geometry_.emplace(checkpoint);
    norm_ = geometry_->final_norm_length();
    known_ = geometry_->unavailable().empty() && norm_ > 0;
  }

  std::string source() const {
    return known_ ? "rows of lm_head and the final norm of the checkpoint"
                  : "no checkpoint with a plain lm_head: the typical scale";
  }

  double of(const Token& a, const Token& b) const {
    if (!known_) return tolerance::kTypicalLogitScale;
    const std::optional<double> distance = geometry_->row_distance(a.id, b.id);
    if (!distance || *distance == 0) return tolerance::kTypicalLogitScale;
    return *distance * norm_ / std::sqrt(static_cast<double>(geometry_->hidden_size()));
  }

 private:
  std::optional<LogitGeometry> geometry_;
  double norm_ = 0;
  bool known_ = false;
};

// l(a) - l(b) of a step. A token that is missing in the list is no stronger than its last entry.
double margin_of(const SideStep& step, const Token& a, const Token& b, bool& bounded) {
  const auto value = [&](const Token& token) {
    if (const auto found = step.logprob_of(token)) return *found;
    bounded = true;
    return step.top.empty() ? std::nan("") : step.top.back().logprob;
  };
  return value(a) - value(b);
}

// The pair that is looked at: both choices at a fork, else the choice and its runner-up.
Token other_token(const SideStep& a, const SideStep& b) {
  if (!(a.chosen == b.chosen)) return b.chosen;
  for (const TokenLogprob& entry : a.top) {
    if (!(entry.token == a.chosen)) return entry.token;
  }
  return b.chosen;
}

ForkStep step_of(const SideStep& a, const SideStep& b, size_t index, const LogitScale& scale) {
  ForkStep step;
  step.step = index;
  step.a = a.chosen;
  step.b = b.chosen;
  step.fork = !(a.chosen == b.chosen);
  const Token other = other_token(a, b);
  step.margin_a = margin_of(a, a.chosen, other, step.bounded);
  step.margin_b = margin_of(b, a.chosen, other, step.bounded);
  step.scale = scale.of(a.chosen, other);
  return step;
}

// Tokens of both sides cannot be compared, but there is text.
bool is_text_only(const SideRun& a, const SideRun& b) {
  if (a.text.empty() || b.text.empty()) return false;
  return a.steps.empty() || b.steps.empty() || !share_names(a.steps[0].chosen, b.steps[0].chosen);
}

// An engine may end its text at the end of a turn where the other runs on.
ForkEvidence text_evidence(const std::string& name, const std::string& a, const std::string& b) {
  ForkEvidence evidence;
  evidence.name = name;
  evidence.text_only = true;
  evidence.length = std::min(a.size(), b.size());
  while (evidence.prefix < evidence.length && a[evidence.prefix] == b[evidence.prefix]) {
    ++evidence.prefix;
  }
  return evidence;
}

ForkEvidence evidence_of(const std::string& name, const SideRun& a, const SideRun& b,
                         const LogitScale& scale) {
  if (is_text_only(a, b)) return text_evidence(name, a.text, b.text);
  ForkEvidence evidence;
  evidence.name = name;
  evidence.length = a.steps.size();
  const size_t n = std::min(a.steps.size(), b.steps.size());
  evidence.prefix = n;
  for (size_t i = 0; i < n; ++i) {
    evidence.steps.push_back(step_of(a.steps[i], b.steps[i], i, scale));
    if (evidence.steps.back().fork && evidence.prefix == n) evidence.prefix = i;
  }
  return evidence;
}

std::filesystem::path write_inject(const TapMap& taps, const std::filesystem::path& path) {
  SafetensorsWriter writer;
  for (const auto& [tap, tensor] : taps) {
    if (can_inject(tap)) {
      writer.add(tap, DType::F32, tensor.shape, std::as_bytes(std::span(tensor.values)));
    }
  }
  writer.write(path);
  return path;
}

// The prompts that forked first, then the others.
std::vector<size_t> local_order(const std::vector<PromptDivergence>& prompts) {
  std::vector<size_t> order(prompts.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) {
    const ForkEvidence& a = prompts[x].evidence;
    const ForkEvidence& b = prompts[y].evidence;
    const bool fork_a = a.prefix < a.length;
    const bool fork_b = b.prefix < b.length;
    return fork_a != fork_b ? fork_a : fork_a && a.prefix < b.prefix;
  });
  return order;
}

// The second side on the first side's tensors, up to the fork.
bool add_local_errors(Side& a, Side& b, const std::vector<DivergePrompt>& prompts,
                      const std::vector<SideRun>& runs, int n_local,
                      std::vector<PromptDivergence>& found) {
  std::vector<size_t> chosen = local_order(found);
  chosen.resize(std::min(chosen.size(), static_cast<size_t>(n_local)));
  std::vector<TapJob> jobs;
  for (const size_t i : chosen) {
    TapJob job{prompts[i], {}, {}};
    const size_t n = std::min(runs[i].steps.size(), found[i].evidence.prefix + 1);
    for (size_t step = 0; step < n; ++step) job.forced.push_back(runs[i].steps[step].chosen.id);
    jobs.push_back(std::move(job));
  }
  if (jobs.empty()) return false;
  const auto reference = a.taps(jobs);
  if (!reference) return false;
  const TempDir folder;
  for (size_t j = 0; j < jobs.size(); ++j) {
    jobs[j].inject =
        write_inject((*reference)[j], folder.path() / fmt::format("{}.safetensors", j));
  }
  const auto judged = b.taps(jobs);
  if (!judged) return false;
  for (size_t j = 0; j < jobs.size(); ++j) {
    for (const auto& [tap, tensor] : (*reference)[j]) {
      const auto other = (*judged)[j].find(tap);
      if (other == (*judged)[j].end()) continue;
      const TensorDiff diff = compare_tensors(other->second, tensor);
      if (!diff.vacuous.empty()) continue;
      const double error = diff.same_shape ? diff.rel_l2 : std::nan("");
      found[chosen[j]].evidence.local.push_back({tap, error});
    }
  }
  return true;
}

DivergePrompt prompt_of(const std::string& line, const std::string& where) {
  DivergePrompt prompt;
  try {
    const Json json = Json::parse(line);
    prompt.name = json_field<std::string>(json, "name");
    if (json.contains("ids")) {
      prompt.ids = json_field<std::vector<int32_t>>(json, "ids");
    } else {
      prompt.text = json_field<std::string>(json, "prompt");
    }
  } catch (const std::exception& error) {
    fail_with(ExitCode::could_not_judge, "{}: {}", where, json_problem(error));
  }
  return prompt;
}

}  // namespace

std::vector<DivergePrompt> read_prompts(const std::filesystem::path& path) {
  std::vector<DivergePrompt> prompts;
  if (path.extension() == ".jsonl") {
    std::istringstream lines(read_text_file(path, kMaxJsonBytes));
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      const std::string where = fmt::format("{}:{}", path.string(), number);
      prompts.push_back(prompt_of(line, where));
    }
    return prompts;
  }
  for (const OraclePrompt& prompt : read_oracle(path).prompts) {
    if (!prompt.has_image) prompts.push_back({prompt.name, prompt.ids, {}});
  }
  return prompts;
}

DivergeReport diverge(Side& a, Side& b, const std::vector<DivergePrompt>& prompts,
                      const DivergeOptions& options) {
  DivergeReport report;
  report.label_a = a.label();
  report.label_b = b.label();
  report.declared = kDriftClasses[options.judge.declared].name;
  const LogitScale scale(options.checkpoint);
  report.scale_source = scale.source();
  const std::vector<SideRun> runs_a = a.run(prompts, options.max_tokens);
  // Without tokens nothing can be fed.
  const bool can_follow =
      std::ranges::all_of(runs_a, [](const auto& r) { return !r.steps.empty(); });
  const std::vector<SideRun> runs_b =
      can_follow ? b.follow(prompts, runs_a) : b.run(prompts, options.max_tokens);
  LOCKSTEP_CHECK(runs_a.size() == prompts.size() && runs_b.size() == prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    report.prompts.push_back({evidence_of(prompts[i].name, runs_a[i], runs_b[i], scale),
                              {},
                              runs_a[i].text,
                              runs_b[i].text});
  }
  if (options.n_local > 0 && can_follow) {
    report.has_local = add_local_errors(a, b, prompts, runs_a, options.n_local, report.prompts);
  }
  std::vector<ForkJudgement> judgements;
  for (PromptDivergence& prompt : report.prompts) {
    prompt.judgement = judge_forks(prompt.evidence, options.judge);
    judgements.push_back(prompt.judgement);
  }
  report.judgement = merge_judgements(judgements);
  return report;
}

}  // namespace lockstep
