// Two tap dumps of any origin, tensor by tensor.
#pragma once

#include <string>
#include <vector>

#include "validation/compare/report.h"
#include "validation/tap_file.h"

namespace lockstep {

struct DumpReport {
  Verdict verdict = Verdict::pass;
  std::string first_bad;
  std::vector<TapRow> rows;              // in TapOrder
  std::vector<std::string> not_checked;  // taps that the dump does not promise
};

// `a` is judged against `b`. A tensor that only one of them holds is an error, ranks that differ
// are a failure, two dumps without a common tensor prove nothing (MISTRUSTED).
DumpReport compare_dumps(const TapDump& a, const TapDump& b, const TensorLimit& limit);

}  // namespace lockstep
