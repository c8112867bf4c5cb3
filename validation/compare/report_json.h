// The machine-readable form of a comparison (`lockstep compare --json`).
#pragma once

#include <string>

#include "validation/compare/dump_compare.h"
#include "validation/compare/report.h"

namespace lockstep {

// One object: verdict, reasons, prompts. Numbers are finite: an infinite or undefined error is
// written as 1e300. With `with_taps` every prompt carries its taps.
std::string report_json(const CompareReport& report, bool with_taps);

// {"verdict", "tensors": [...]}.
std::string dump_report_json(const DumpReport& report);

// {"verdict": "ERROR", "error": message, "prompts": []} for a run that could not be judged.
std::string error_json(const std::string& message);

}  // namespace lockstep
