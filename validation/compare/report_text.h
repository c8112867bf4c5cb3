// The human-readable form of a comparison: aligned columns, colour only where asked for.
#pragma once

#include <string>
#include <vector>

#include "validation/compare/dump_compare.h"
#include "validation/compare/report.h"

namespace lockstep {

// Kind of each layer's mixer ("attention" or "GDN") from MODEL/config.json; empty when it does not
// say.
std::vector<std::string> mixer_kinds(const std::string& model);

struct TextStyle {
  bool colour = false;
  bool verbose = false;  // adds the per-layer view of the worst prompt
};

std::string report_text(const CompareReport& report, const std::vector<std::string>& kinds,
                        const TextStyle& style);

std::string dump_report_text(const DumpReport& report, const TextStyle& style);

// The verdict's name, green, yellow or red with `colour`.
std::string coloured_verdict(Verdict verdict, bool colour);

}  // namespace lockstep
