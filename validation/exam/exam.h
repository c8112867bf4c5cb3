// Asks the exam's questions of an engine or an endpoint, stores every item, and pairs it with an
// earlier run.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "validation/exam/paired.h"
#include "validation/exam/questions.h"

namespace lockstep {

struct ExamItem {
  std::string question;  // digest of its text
  QuestionKind kind = QuestionKind::choice;
  std::string answer;
  Outcome outcome = Outcome::none;
  int64_t tokens = 0;
  double seconds = 0;
};

// Where questions go: a program with --jobs or an endpoint.
struct ExamTarget {
  std::string spec;  // as a side of diverge: program and flags, or http://HOST:PORT
  std::filesystem::path model;
  std::string served_model;
  int max_tokens = 48;
  std::chrono::seconds timeout{1800};
};

struct RawAnswer {
  std::string text;
  bool cut = false;  // the budget was spent
  int64_t tokens = 0;
  double seconds = 0;
};

// One answer a question, in order; asked in the order of `order` (the control arm asks backwards).
// Throws Error (exit 3).
std::vector<RawAnswer> ask_all(const ExamTarget& target, const std::vector<Question>& questions,
                               const std::vector<size_t>& order);

// Agreement with the answers that the oracle recorded.
struct Agreement {
  int64_t equal = 0;
  int64_t ties = 0;   // other words, where the engine's margin over the recorded ones is a tie
  int64_t other = 0;  // neither, or the target gives no margins
  int64_t n = 0;
  double largest_tie_sigmas = 0;
};

// A program is fed the recorded answer where its own differs, and the margin is judged at the first
// other token, at bf16.
Agreement judge_agreement(const ExamTarget& target, const std::vector<Question>& questions,
                          const std::vector<ExamItem>& items);

struct ExamReport {
  std::string target;
  std::vector<ExamItem> items;
  Agreement agreement;
  std::optional<PairedReport> against;
  std::string against_path;
  std::optional<PairedReport> control;  // the same target, asked in another order
  double margin = 0.02;

  int64_t count(Outcome outcome) const;
};

struct ExamOptions {
  ExamTarget target;
  double margin = 0.02;
  std::filesystem::path against;  // store of an earlier run
  int n_control = 60;             // items that are asked again; 0 for none
};

ExamReport run_exam(const std::vector<Question>& questions, const ExamOptions& options,
                    const Sandbox& sandbox);

// JSON lines, one an item, in the order of the questions (docs/formats/exam.md).
std::string store_lines(const std::vector<ExamItem>& items);
std::vector<ExamItem> read_store(const std::filesystem::path& path);
// Pairs by question; throws Error (exit 3) when the runs share none, or one holds others.
PairedReport pair_runs(const std::vector<ExamItem>& before, const std::vector<ExamItem>& now,
                       double margin);

std::string exam_text(const ExamReport& report);
std::string exam_json(const ExamReport& report);

}  // namespace lockstep
