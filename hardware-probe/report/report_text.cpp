#include <map>

#include "hardware-probe/report/report.h"

namespace lockstep::probe {
namespace {

const char* colour_of(Status status) {
  switch (status) {
    case Status::pass:
      return "\x1b[32m";
    case Status::info:
      return "\x1b[36m";
    case Status::warn:
      return "\x1b[33m";
    case Status::fail:
      return "\x1b[31m";
    case Status::skip:
    case Status::inconclusive:
      return "\x1b[35m";
  }
  return "";
}

std::string paint(const std::string& text, const char* code, bool colour) {
  return colour ? code + text + "\x1b[0m" : text;
}

const char* colour_of(Verdict verdict) {
  if (verdict == Verdict::accept) return "\x1b[1;32m";
  if (verdict == Verdict::reject) return "\x1b[1;31m";
  return "\x1b[1;33m";
}

std::string heading(const ReportInput& input) {
  std::string out =
      fmt::format("lockstep-probe {}  {} mode  backend {}{}\n", input.program_version,
                  mode_name(input.seen.mode), input.seen.backend,
                  input.seen.backend == "real" ? "" : ": SIMULATED, no card was seen");
  for (size_t i = 0; i < input.seen.gpus.size(); ++i) {
    const GpuIdentity& id = input.seen.gpus[i].identity;
    const std::string& row = input.judgement.rows[i];
    out += fmt::format("gpu{}  {}  {}  [{}]\n", i, id.bus_id, id.name.value_or("?"),
                       row.empty() ? "not in the database" : row);
  }
  return out;
}

}  // namespace

std::string report_to_text(const ReportInput& input, bool colour) {
  std::string out = heading(input) + "\n";
  for (const Finding& finding : input.judgement.findings) {
    const std::string status = fmt::format("{:<12}", status_name(finding.status));
    out += fmt::format("{:<7} {:<22} {:<10} {} {}\n", finding.check, finding.name, finding.target,
                       paint(status, colour_of(finding.status), colour), finding.reason.en);
    const bool shown = finding.status != Status::pass && !finding.remedy.en.empty();
    if (shown) out += fmt::format("{:<54}-> {}\n", "", finding.remedy.en);
  }
  if (!input.judgement.ranking.empty()) {
    out += "\nWhat decides the speed of language models on this machine:\n";
  }
  for (const Text& line : input.judgement.ranking) out += "  " + line.en + "\n";
  const Coverage& coverage = input.judgement.coverage;
  out += fmt::format(
      "\ncoverage: {}/{} checks, {:.1f} % of memory, {:.0f} % of SMs, {:.0f} % of pairs\n",
      coverage.checks_run, coverage.checks_total, 100 * coverage.memory_share,
      100 * coverage.sm_share, 100 * coverage.pair_share);
  const std::string name =
      fmt::format("{} ({})", verdict_name(input.judgement.verdict), mode_name(input.seen.mode));
  out += fmt::format("{}: {}\n", paint(name, colour_of(input.judgement.verdict), colour),
                     verdict_text(input.judgement.verdict, input.seen.mode).en);
  return out;
}

}  // namespace lockstep::probe
