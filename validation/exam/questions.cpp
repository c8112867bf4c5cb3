#include "validation/exam/questions.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/json_problem.h"
#include "engine/base/mapped_file.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFence = "```";
constexpr std::string_view kResult = "RESULT ";

// Runs inside the sandbox: calls the function and prints what it returned.
constexpr const char* kDriver = R"(import json
job = json.load(open("/input"))
space = {}
exec(compile(job["code"], "answer", "exec"), space)
values = [space[job["function"]](*arguments) for arguments in job["arguments"]]
print("\nRESULT " + json.dumps(values), flush=True)
)";

constexpr std::array<std::string_view, 5> kOutcomes = {"right", "wrong", "budget", "none",
                                                       "contained"};

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

Question parse_question(const Json& json) {
  Question question;
  const auto kind = json_field<std::string>(json, "kind");
  if (kind != "code" && kind != "choice") fail("unknown kind {}", kind);
  question.kind = kind == "code" ? QuestionKind::code : QuestionKind::choice;
  question.text = json_field<std::string>(json, "q");
  question.answer = json_field<std::string>(json, "a");
  if (json.contains("reference_answer")) {
    question.reference_answer = json_field<std::string>(json, "reference_answer");
    question.reference_correct = json_field<bool>(json, "reference_correct");
  }
  if (question.kind == QuestionKind::choice) return question;
  question.function = json_field<std::string>(json, "name");
  Json arguments = Json::array();
  Json expected = Json::array();
  for (const Json& test : json_field<std::vector<Json>>(json, "tests")) {
    arguments.push_back(test.at(0));
    expected.push_back(test.at(1));
  }
  if (expected.empty()) fail("a code question without tests");
  question.arguments = arguments.dump();
  question.expected = expected.dump();
  return question;
}

Outcome run_code(const Question& question, const std::string& code, const Sandbox& sandbox) {
  const Json job = {{"code", code},
                    {"function", question.function},
                    {"arguments", Json::parse(question.arguments)}};
  const SandboxResult result =
      sandbox.run_python(kDriver, job.dump(-1, ' ', true, Json::error_handler_t::replace));
  const size_t at = result.output.rfind("\n" + std::string(kResult));
  if (result.end != SandboxEnd::finished || at == std::string::npos) return Outcome::contained;
  const size_t begin = at + 1 + kResult.size();
  const Json values = Json::parse(
      result.output.substr(begin, result.output.find('\n', begin) - begin), nullptr, false);
  return values == Json::parse(question.expected) ? Outcome::right : Outcome::wrong;
}

}  // namespace

std::vector<Question> read_questions(const std::filesystem::path& path) {
  std::istringstream lines(read_text_file(path));
  std::vector<Question> questions;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      questions.push_back(parse_question(Json::parse(line)));
    } catch (const std::exception& error) {
      fail_with(ExitCode::could_not_judge, "{}:{}: {}", path.string(), number, json_problem(error));
    }
  }
  if (questions.empty()) {
    fail_with(ExitCode::could_not_judge, "{}: holds no question", path.string());
  }
  return questions;
}

std::string_view outcome_name(Outcome outcome) {
  return kOutcomes[static_cast<size_t>(outcome)];
}

Outcome parse_outcome(const std::string& name) {
  for (size_t i = 0; i < kOutcomes.size(); ++i) {
    if (kOutcomes[i] == name) return static_cast<Outcome>(i);
  }
  fail_with(ExitCode::could_not_judge, "unknown outcome {}", name);
}

std::string code_of(const std::string& answer, bool& closed) {
  closed = true;
  const size_t open = answer.find(kFence);
  if (open == std::string::npos) return answer;
  const size_t begin = answer.find('\n', open);
  const size_t end =
      begin == std::string::npos ? begin : answer.find("\n" + std::string(kFence), begin);
  closed = end != std::string::npos;
  if (begin == std::string::npos) return {};
  return answer.substr(begin + 1, closed ? end - begin : std::string::npos);
}

Outcome judge_answer(const Question& question, const std::string& answer, bool cut,
                     const Sandbox& sandbox) {
  if (trimmed(answer).empty()) return cut ? Outcome::budget : Outcome::none;
  if (question.kind == QuestionKind::choice) {
    if (trimmed(answer) == question.answer) return Outcome::right;
    return cut ? Outcome::budget : Outcome::wrong;
  }
  bool closed = true;
  const std::string code = code_of(answer, closed);
  const bool whole = closed && answer.find(kFence) != std::string::npos;
  if (cut && !whole) return Outcome::budget;
  return run_code(question, code, sandbox);
}

}  // namespace lockstep
