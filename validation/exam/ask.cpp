// Questions to programs and endpoints.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/json_problem.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/progress.h"
#include "engine/base/temp_dir.h"
#include "validation/compare/logit_geometry.h"
#include "validation/diverge/drift_class.h"
#include "validation/diverge/openai_client.h"
#include "validation/engine_run.h"
#include "validation/exam/exam.h"
#include "validation/tolerance.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr size_t kMaxResultBytes = size_t{1} << 30;

bool is_endpoint(const ExamTarget& target) {
  return target.spec.starts_with("http://") || target.spec.starts_with("https://");
}

Json chat_of(const Question& question) {
  return {{"messages", {{{"role", "user"}, {"content", question.text}}}},
          {"chat_template_kwargs", {{"enable_thinking", false}}}};
}

// Result lines of a program's jobs, in order. It answers all at its end: the bar, called `label`,
// says what is being waited for.
std::vector<Json> run_jobs(const ExamTarget& target, const std::vector<Json>& jobs,
                           const char* label) {
  Progress progress(label, jobs.size(), "questions");
  progress.advance(0);
  const TempDir folder;
  std::string lines;
  for (const Json& job : jobs) lines += job.dump() + "\n";
  write_file_atomically(folder.path() / "jobs.jsonl", lines);
  fs::create_directory(folder.path() / "out");
  std::vector<std::string> argv;
  std::istringstream words(target.spec);
  for (std::string word; words >> word;) argv.push_back(word);
  if (!target.model.empty()) argv.insert(argv.end(), {"--model", target.model.string()});
  run_job_program(argv, target.timeout, folder.path() / "jobs.jsonl", folder.path() / "out");
  std::vector<Json> results;
  std::istringstream text(read_text_file(folder.path() / "out" / kResultsFile, kMaxResultBytes));
  for (std::string line; std::getline(text, line);) {
    if (!line.empty()) results.push_back(Json::parse(line, nullptr, false));
  }
  if (results.size() != jobs.size()) {
    fail_with(ExitCode::could_not_judge, "{}: {} results for {} jobs", argv[0], results.size(),
              jobs.size());
  }
  progress.advance(jobs.size());
  return results;
}

std::vector<RawAnswer> ask_program(const ExamTarget& target, const std::vector<Question>& questions,
                                   const std::vector<size_t>& order) {
  std::vector<Json> jobs;
  for (const size_t i : order) {
    jobs.push_back({{"name", fmt::format("q{}", i)},
                    {"chat", chat_of(questions[i])},
                    {"max_tokens", target.max_tokens},
                    {"temperature", 0}});
  }
  const std::vector<Json> results = run_jobs(target, jobs, "exam");
  std::vector<RawAnswer> answers(questions.size());
  for (size_t k = 0; k < order.size(); ++k) {
    try {
      RawAnswer& answer = answers[order[k]];
      answer.text = results[k].at("text").get<std::string>();
      answer.cut = results[k].at("finish_reason") == "length";
      answer.tokens = results[k].at("completion_tokens").get<int64_t>();
      const Json& timing = results[k].at("timing");
      answer.seconds = timing.at("prefill_s").get<double>() + timing.at("decode_s").get<double>();
    } catch (const Json::exception& error) {
      fail_with(ExitCode::could_not_judge, "{}: result {}: {}", target.spec, k,
                json_problem(error));
    }
  }
  return answers;
}

std::vector<RawAnswer> ask_endpoint(const ExamTarget& target,
                                    const std::vector<Question>& questions,
                                    const std::vector<size_t>& order) {
  const OpenAiClient client(target.spec, target.served_model, target.timeout);
  std::vector<RawAnswer> answers(questions.size());
  Progress progress("exam", order.size(), "questions");
  for (const size_t i : order) {
    progress.advance(0);
    const ChatAnswer answer = client.ask(questions[i].text, target.max_tokens);
    answers[i] = {answer.text, answer.finish_reason == "length", answer.completion_tokens,
                  answer.seconds};
    progress.advance();
  }
  return answers;
}

// Ids of the recorded answers, by the tokenizer of the model.
std::vector<std::vector<int32_t>> tokenize(const ExamTarget& target,
                                           const std::vector<std::string>& texts) {
  const TempDir folder;
  std::string lines;
  for (const std::string& text : texts) lines += Json{{"text", text}}.dump() + "\n";
  write_file_atomically(folder.path() / "texts.jsonl", lines);
  const ProcessResult process =
      run_process({sibling_program("lockstep-tokenize").string(), "--model", target.model.string(),
                   "--jsonl", (folder.path() / "texts.jsonl").string()});
  if (process.exit_code != 0) {
    fail_with(ExitCode::could_not_judge, "{}", failure_reason(process.stderr_text));
  }
  std::vector<std::vector<int32_t>> ids;
  std::istringstream out(process.stdout_text);
  for (std::string line; std::getline(out, line);) {
    ids.push_back(Json::parse(line).at("ids").get<std::vector<int32_t>>());
  }
  return ids;
}

// In standard deviations of bf16: how far the engine prefers its own token to the recorded one at
// the first place where they differ; nothing when it follows the recorded answer throughout.
std::optional<double> preference(const Json& result, const std::vector<int32_t>& recorded,
                                 const LogitGeometry& geometry) {
  const Json& steps = result.at("logits");
  for (size_t i = 0; i < std::min(steps.size(), recorded.size()); ++i) {
    const auto ids = steps[i].at("ids").get<std::vector<int32_t>>();
    const auto values = steps[i].at("values").get<std::vector<double>>();
    if (ids.at(0) == recorded[i]) continue;
    const auto at = std::find(ids.begin(), ids.end(), recorded[i]);
    const double lost = at == ids.end() ? std::numeric_limits<double>::infinity()
                                        : values[0] - values[static_cast<size_t>(at - ids.begin())];
    const double distance = geometry.row_distance(ids[0], recorded[i]).value_or(0);
    const double scale = geometry.unavailable().empty() && distance > 0
                             ? distance * geometry.final_norm_length() /
                                   std::sqrt(static_cast<double>(geometry.hidden_size()))
                             : tolerance::kTypicalLogitScale;
    return lost / (tolerance::kBf16NoiseFactor *
                   kDriftClasses[*drift_class("bf16")].final_norm_noise * scale);
  }
  return std::nullopt;
}

std::optional<double> preference_of(const ExamTarget& target, size_t k, const Json& result,
                                    const std::vector<int32_t>& recorded,
                                    const LogitGeometry& geometry) {
  try {
    return preference(result, recorded, geometry);
  } catch (const Json::exception& error) {
    fail_with(ExitCode::could_not_judge, "{}: logits of result {}: {}", target.spec, k,
              json_problem(error));
  }
}

}  // namespace

std::vector<RawAnswer> ask_all(const ExamTarget& target, const std::vector<Question>& questions,
                               const std::vector<size_t>& order) {
  return is_endpoint(target) ? ask_endpoint(target, questions, order)
                             : ask_program(target, questions, order);
}

Agreement judge_agreement(const ExamTarget& target, const std::vector<Question>& questions,
                          const std::vector<ExamItem>& items) {
  Agreement agreement;
  std::vector<size_t> others;
  std::vector<std::string> texts;
  for (size_t i = 0; i < questions.size(); ++i) {
    if (questions[i].reference_answer.empty()) continue;
    ++agreement.n;
    if (items[i].answer == questions[i].reference_answer) {
      ++agreement.equal;
    } else {
      others.push_back(i);
      texts.push_back(questions[i].reference_answer);
    }
  }
  agreement.other = static_cast<int64_t>(others.size());
  if (others.empty() || is_endpoint(target)) return agreement;
  const std::vector<std::vector<int32_t>> recorded = tokenize(target, texts);
  std::vector<Json> jobs;
  for (size_t k = 0; k < others.size(); ++k) {
    jobs.push_back({{"name", fmt::format("r{}", k)},
                    {"chat", chat_of(questions[others[k]])},
                    {"max_tokens", recorded[k].size()},
                    {"force_ids", recorded[k]},
                    {"ignore_eos", true},
                    {"logits", kTopLogits},
                    {"temperature", 0}});
  }
  const LogitGeometry geometry(target.model);
  const std::vector<Json> results = run_jobs(target, jobs, "recorded answers");
  for (size_t k = 0; k < others.size(); ++k) {
    const std::optional<double> sigmas =
        preference_of(target, k, results[k], recorded[k], geometry);
    if (!sigmas || *sigmas > tolerance::kBf16LogitSigmas) continue;
    ++agreement.ties;
    --agreement.other;
    agreement.largest_tie_sigmas = std::max(agreement.largest_tie_sigmas, *sigmas);
  }
  return agreement;
}

}  // namespace lockstep
