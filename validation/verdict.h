// The five verdicts and how they combine. A skip is never a pass, and a check that could not be
// trusted or could not be made is worse than a skip; only a proven deviation is worse than that.
#pragma once

#include <string_view>

namespace lockstep {

// In order of severity: PASS < SKIPPED < MISTRUSTED < ERROR < FAIL.
enum class Verdict { pass, skipped, mistrusted, error, fail };

// The worse of the two. Associative, commutative, idempotent; `pass` is neutral.
Verdict merge(Verdict a, Verdict b);

// "PASS", "SKIPPED", "MISTRUSTED", "ERROR", "FAIL".
std::string_view verdict_name(Verdict verdict);

// 0, 77, 4, 3, 1.
int verdict_exit_code(Verdict verdict);

}  // namespace lockstep
