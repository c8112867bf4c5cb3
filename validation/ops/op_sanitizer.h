// compute-sanitizer over samples of the op tests.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "validation/ops/op_list.h"
#include "validation/verdict.h"

namespace lockstep {

inline constexpr const char* kSanitizerTools[] = {"memcheck", "racecheck", "initcheck",
                                                  "synccheck"};

struct SanitizerRun {
  std::string tool;
  std::string program;
  std::string name;  // of the case
  // PASS, FAIL with a finding, SKIPPED when it was too slow or did nothing on the card, ERROR when
  // the tool does not work.
  Verdict verdict = Verdict::pass;
  std::string detail;  // one line; empty for PASS
};

struct SanitizerReport {
  std::vector<SanitizerRun> runs;
  int n_left_out = 0;  // pairs of tool and case that the time did not reach
};

// One case of a test program under one tool.
SanitizerRun run_sanitizer(const std::string& sanitizer, const std::string& tool,
                           const std::filesystem::path& program, const std::string& name,
                           const std::map<std::string, std::string>& environment = {});

// Cases that fit a pattern first; the others in an order that has nothing to do with their names.
std::vector<std::string> sample_first(std::vector<std::string> cases,
                                      const std::vector<std::string>& patterns);

// All programs under all tools, a case a run, until `seconds` are over. Each pair of program and
// tool has at least one run, whatever the time.
SanitizerReport run_sanitizers(const OpList& list, const std::string& sanitizer, double seconds,
                               int n_workers);

}  // namespace lockstep
