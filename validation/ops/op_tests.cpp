#include "validation/ops/op_tests.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"
#include "validation/engine_run.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// GoogleTest's JSON: suites of cases.
void add_cases(const Json& report, OpTestRun& run) {
  for (const Json& suite : report.value("testsuites", Json::array())) {
    for (const Json& test : suite.value("testsuite", Json::array())) {
      if (test.value("status", "") != "RUN") continue;
      OpCase out;
      out.name = suite.value("name", "") + "." + test.value("name", "");
      if (test.value("result", "") == "SKIPPED") out.state = OpCase::State::skipped;
      if (const Json failures = test.value("failures", Json::array()); !failures.empty()) {
        out.state = OpCase::State::failed;
        // The first line is file:line of a source that may not be here.
        const std::string message = failures[0].value("failure", "");
        const size_t line = message.find('\n');
        out.message = line == std::string::npos ? message : first_line(message.substr(line + 1));
      }
      run.cases.push_back(std::move(out));
    }
  }
}

}  // namespace

int OpTestRun::count(OpCase::State state) const {
  return static_cast<int>(
      std::count_if(cases.begin(), cases.end(), [&](const OpCase& c) { return c.state == state; }));
}

OpTestRun run_op_test(const OpTestPlan& plan) {
  const TempDir folder;
  const std::filesystem::path report = folder.path() / "report.json";
  std::vector<std::string> argv = {plan.program.string(), "--gtest_brief=1",
                                   "--gtest_output=json:" + report.string()};
  if (!plan.filter.empty()) {
    std::string filter;
    for (const std::string& part : plan.filter) filter += (filter.empty() ? "" : ":") + part;
    argv.push_back("--gtest_filter=" + filter);
  }
  if (plan.stop_at_first) argv.emplace_back("--gtest_fail_fast");
  std::map<std::string, std::string> environment = plan.environment;
  environment["GTEST_TOTAL_SHARDS"] = std::to_string(plan.n_shards);
  environment["GTEST_SHARD_INDEX"] = std::to_string(plan.shard);
  OpTestRun run;
  ProcessResult result;
  try {
    result = run_process(argv, milliseconds(plan.limit_s), environment);
  } catch (const Error& error) {
    run.broken = error.what();
    return run;
  }
  if (std::filesystem::is_regular_file(report)) {
    const Json json = Json::parse(read_text_file(report), nullptr, false);
    if (json.is_object()) add_cases(json, run);
  }
  const bool red = run.count(OpCase::State::failed) > 0;
  if (result.timed_out) {
    run.broken = fmt::format("did not end within {:.0f} s", plan.limit_s);
  } else if (result.exit_code != 0 && !red) {
    const std::string words = failure_reason(result.stderr_text);
    run.broken = fmt::format("exit code {}{}{}", result.exit_code, words.empty() ? "" : ": ",
                             first_line(words));
  } else if (result.exit_code == 0 && red) {
    run.broken = "reports failures and ends with 0";
  }
  return run;
}

std::vector<std::string> list_op_cases(const std::filesystem::path& program) {
  const ProcessResult result =
      run_process({program.string(), "--gtest_list_tests"}, std::chrono::seconds(60));
  if (result.exit_code != 0) {
    fail_with(ExitCode::could_not_judge, "{} --gtest_list_tests: exit code {}", program.string(),
              result.exit_code);
  }
  std::vector<std::string> cases;
  std::string suite;
  std::istringstream lines(result.stdout_text);
  for (std::string line; std::getline(lines, line);) {
    line = line.substr(0, line.find("  #"));
    if (line.starts_with("  ")) {
      cases.push_back(suite + line.substr(2));
    } else if (line.ends_with(".")) {
      suite = line;
    }
  }
  return cases;
}

Verdict judge_op_test(const OpTestRun& run) {
  if (!run.broken.empty() || run.count(OpCase::State::failed) > 0) return Verdict::fail;
  if (run.cases.empty()) return Verdict::mistrusted;
  return run.count(OpCase::State::passed) == 0 ? Verdict::skipped : Verdict::pass;
}

std::string first_failure(const OpTestRun& run) {
  for (const OpCase& c : run.cases) {
    if (c.state == OpCase::State::failed) return c.name + ": " + c.message;
  }
  return run.broken;
}

}  // namespace lockstep
