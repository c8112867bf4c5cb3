// The exam's questions and what counts as a right answer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "validation/exam/sandbox.h"

namespace lockstep {

enum class QuestionKind { code, choice };

struct Question {
  QuestionKind kind = QuestionKind::choice;
  std::string text;
  std::string answer;     // choice: right when the whole answer equals it
  std::string function;   // code: what the answer must define
  std::string arguments;  // code: JSON list of argument lists
  std::string expected;   // code: JSON list of results
  std::string reference_answer;
  bool reference_correct = false;
};

// .jsonl as golden/oracle/exam.jsonl. Throws Error (exit 3) that names the line.
std::vector<Question> read_questions(const std::filesystem::path& path);

// budget: the answer was cut at its last token and is no whole answer; none: nothing was said;
// contained: the code ran into a wall (time, memory, output) or failed.
enum class Outcome { right, wrong, budget, none, contained };
std::string_view outcome_name(Outcome outcome);
Outcome parse_outcome(const std::string& name);  // throws Error

// The code of a ``` block, or the whole text when there is none; `closed` is false when a block
// does not end.
std::string code_of(const std::string& answer, bool& closed);

// `cut`: the budget was spent. Code runs in the sandbox: it is given the arguments, never what is
// expected.
Outcome judge_answer(const Question& question, const std::string& answer, bool cut,
                     const Sandbox& sandbox);

}  // namespace lockstep
