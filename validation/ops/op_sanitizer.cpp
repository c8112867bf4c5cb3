#include "validation/ops/op_sanitizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <tuple>

#include "engine/base/digest.h"
#include "engine/base/process.h"
#include "validation/ops/op_tests.h"
#include "validation/ops/process_pool.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFound = 9;  // exit code for findings: GoogleTest ends with 0 or 1
constexpr std::chrono::seconds kLimit{60};
// What the tools say, as an error, of a case that never reached the card.
constexpr const char* kIdle = "terminated before first instrumented API call";

// The first line of the tool that is no heading: "========= Invalid __global__ write of ...".
std::string first_finding(const std::string& text) {
  constexpr std::string_view kMark = "=========";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kMark) || line.find("COMPUTE-SANITIZER") != std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" =", kMark.size());
    if (begin != std::string::npos) return line.substr(begin);
  }
  return "no line says what";
}

struct Task {
  std::string tool;
  std::string program;
  std::string name;
  bool due = false;  // runs even when the time is over
};

std::vector<Task> tasks_of(const OpList& list) {
  std::vector<std::pair<std::string, std::vector<std::string>>> programs;
  size_t longest = 0;
  for (const OpProgram& program : list.programs) {
    programs.emplace_back(
        program.program,
        sample_first(list_op_cases(list.folder / program.program), list.sanitizer_sample));
    longest = std::max(longest, programs.back().second.size());
  }
  std::vector<Task> tasks;
  for (size_t i = 0; i < longest; ++i) {
    for (const auto& [program, cases] : programs) {
      if (i >= cases.size()) continue;
      for (const char* tool : kSanitizerTools) tasks.push_back({tool, program, cases[i], i == 0});
    }
  }
  return tasks;
}

}  // namespace

SanitizerRun run_sanitizer(const std::string& sanitizer, const std::string& tool,
                           const std::filesystem::path& program, const std::string& name,
                           const std::map<std::string, std::string>& environment) {
  const ProcessResult result =
      run_process({sanitizer, "--tool", tool, "--error-exitcode", std::to_string(kFound),
                   program.string(), "--gtest_brief=1", "--gtest_filter=" + name},
                  kLimit, environment);
  SanitizerRun run{tool, program.filename().string(), name, Verdict::pass, {}};
  const std::string text = result.stdout_text + result.stderr_text;
  if (result.timed_out) {
    run.verdict = Verdict::skipped;
    run.detail = fmt::format("not ended within {} s", kLimit.count());
  } else if (text.find(kIdle) != std::string::npos) {
    run.verdict = Verdict::skipped;
    run.detail = "does nothing on the card";
  } else if (result.exit_code != 0) {
    run.verdict = result.exit_code == kFound ? Verdict::fail : Verdict::error;
    run.detail = first_finding(text);
  }
  return run;
}

std::vector<std::string> sample_first(std::vector<std::string> cases,
                                      const std::vector<std::string>& patterns) {
  const auto key = [&](const std::string& name) {
    const bool sample =
        std::any_of(patterns.begin(), patterns.end(),
                    [&](const std::string& pattern) { return fits_pattern(name, pattern); });
    return std::tuple(!sample, digest64(std::as_bytes(std::span(name))), name);
  };
  std::sort(cases.begin(), cases.end(),
            [&](const std::string& a, const std::string& b) { return key(a) < key(b); });
  return cases;
}

SanitizerReport run_sanitizers(const OpList& list, const std::string& sanitizer, double seconds,
                               int n_workers) {
  const std::vector<Task> tasks = tasks_of(list);
  const Clock::time_point start = Clock::now();
  std::vector<SanitizerRun> runs(tasks.size());
  run_pool(tasks.size(), n_workers, [&](size_t i) {
    const Task& task = tasks[i];
    const std::chrono::duration<double> spent = Clock::now() - start;
    if (!task.due && spent.count() > seconds) return;
    runs[i] = run_sanitizer(sanitizer, task.tool, list.folder / task.program, task.name);
  });
  SanitizerReport report;
  for (SanitizerRun& run : runs) {
    if (run.tool.empty()) {
      ++report.n_left_out;
    } else {
      report.runs.push_back(std::move(run));
    }
  }
  return report;
}

}  // namespace lockstep
