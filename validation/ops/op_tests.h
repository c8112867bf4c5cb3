// Runs GoogleTest programs and says what each case did.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "validation/verdict.h"

namespace lockstep {

struct OpCase {
  std::string name;  // Suite.Case
  enum class State { passed, failed, skipped } state = State::passed;
  std::string message;  // first line of the first failure
};

struct OpTestRun {
  std::vector<OpCase> cases;
  // Why the program says nothing: it did not start, crashed, or was too slow; empty otherwise.
  std::string broken;

  int count(OpCase::State state) const;
};

struct OpTestPlan {
  std::filesystem::path program;
  std::vector<std::string> filter;  // of GoogleTest; empty for all cases
  bool stop_at_first = false;       // failure
  int shard = 0;
  int n_shards = 1;
  double limit_s = 300;
  std::map<std::string, std::string> environment = {};
};

OpTestRun run_op_test(const OpTestPlan& plan);

// Suite.Case of every case. Throws Error when the program cannot say.
std::vector<std::string> list_op_cases(const std::filesystem::path& program);

// FAIL with a failed case or a program that broke off, SKIPPED when every case was skipped,
// MISTRUSTED when there was none.
Verdict judge_op_test(const OpTestRun& run);

// "ops_x_cuda_test: Suite.Case: message" of what made the run red; empty when nothing did.
std::string first_failure(const OpTestRun& run);

}  // namespace lockstep
