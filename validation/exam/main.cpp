// lockstep exam: 300 questions to an engine or an endpoint, paired with an earlier run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "engine/base/cli.h"
#include "engine/base/cli_checks.h"
#include "engine/base/error.h"
#include "engine/base/golden_folder.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "validation/exam/exam.h"

namespace lockstep {
namespace {

struct Arguments {
  ExamOptions options;
  std::string questions;
  std::string store;
  double margin_points = 2;
  int limit = 0;
  int timeout_s = 1800;
  bool json = false;
  std::string contained;  // the inner half of the sandbox
  SandboxLimits limits;
};

void add_options(CLI::App& app, Arguments& arguments) {
  ExamTarget& target = arguments.options.target;
  app.add_option("TARGET", target.spec, "A program and its flags (quoted), or http://HOST:PORT");
  app.add_option("--model", target.model, "Checkpoint folder: --model of a program");
  app.add_option("--served-model", target.served_model, "\"model\" of an endpoint's requests");
  app.add_option("--questions", arguments.questions, "Default: the golden exam");
  app.add_option("--limit", arguments.limit, "Ask only the first N questions")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--max-tokens", target.max_tokens, "Budget of an answer")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--store", arguments.store, "Write every item here, for a later --against");
  app.add_option("--against", arguments.options.against, "Store of an earlier run");
  app.add_option("--margin", arguments.margin_points, "Equivalence margin in points")
      ->check(number_in(0.01, 50.0))
      ->capture_default_str();
  app.add_option("--control", arguments.options.n_control,
                 "Questions that are asked again, backwards: the exam's own false alarms")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--timeout", arguments.timeout_s, "Seconds that the target may take")
      ->check(CLI::Range(1, 86400));
  app.add_flag("--json", arguments.json, "Print the report as JSON");
  app.add_option("--contained", arguments.contained)->group("");
  app.add_option("--cpu-seconds", arguments.limits.cpu_s)->group("");
  app.add_option("--memory-bytes", arguments.limits.memory_bytes)->group("");
  app.add_option("--output-bytes", arguments.limits.output_bytes)->group("");
}

int exit_code(const ExamReport& report) {
  // An engine that does not agree with itself cannot be compared with anything.
  if (report.control && report.control->lost + report.control->gained > 0) {
    return static_cast<int>(ExitCode::mistrusted);
  }
  if (!report.against) return 0;
  return static_cast<int>(exit_code_of(report.against->verdict));
}

int examine(Arguments& arguments) {
  if (arguments.options.target.spec.empty()) fail_with(ExitCode::usage, "give a TARGET");
  if (!arguments.store.empty()) require_writable("--store", arguments.store);
  arguments.options.target.timeout = std::chrono::seconds(arguments.timeout_s);
  arguments.options.margin = arguments.margin_points / 100;
  std::vector<Question> questions =
      read_questions(arguments.questions.empty() ? golden_folder() / "oracle" / "exam.jsonl"
                                                 : std::filesystem::path(arguments.questions));
  if (arguments.limit > 0 && questions.size() > static_cast<size_t>(arguments.limit)) {
    questions.resize(static_cast<size_t>(arguments.limit));
  }
  const Sandbox sandbox(sibling_program("lockstep-exam"));
  const ExamReport report = run_exam(questions, arguments.options, sandbox);
  if (!arguments.store.empty()) write_file_atomically(arguments.store, store_lines(report.items));
  fmt::print("{}", arguments.json ? exam_json(report) : exam_text(report));
  return exit_code(report);
}

int run(int argc, char** argv) {
  CLI::App app{"Questions to an engine, paired with an earlier run", "lockstep exam"};
  Arguments arguments;
  add_options(app, arguments);
  if (const auto ended = parse_command_line(app, argc, argv)) return *ended;
  if (!arguments.contained.empty()) return run_contained(arguments.contained, arguments.limits);
  return examine(arguments);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-exam", [&] { return lockstep::run(argc, argv); });
}
