#include "validation/verdict.h"

#include <algorithm>

#include "engine/base/error.h"

namespace lockstep {

Verdict merge(Verdict a, Verdict b) {
  return std::max(a, b);
}

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return "PASS";
    case Verdict::skipped:
      return "SKIPPED";
    case Verdict::mistrusted:
      return "MISTRUSTED";
    case Verdict::error:
      return "ERROR";
    case Verdict::fail:
      return "FAIL";
  }
  LOCKSTEP_CHECK(false);
  return {};
}

int verdict_exit_code(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return static_cast<int>(ExitCode::pass);
    case Verdict::skipped:
      return static_cast<int>(ExitCode::skipped);
    case Verdict::mistrusted:
      return static_cast<int>(ExitCode::mistrusted);
    case Verdict::error:
      return static_cast<int>(ExitCode::could_not_judge);
    case Verdict::fail:
      return static_cast<int>(ExitCode::fail);
  }
  LOCKSTEP_CHECK(false);
  return 0;
}

}  // namespace lockstep
