#include "hardware-probe/report/judgement.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "hardware-probe/checks/check_table.h"
#include "hardware-probe/report/summary.h"

namespace lockstep::probe {
namespace {

Coverage coverage_of(const Context& context, const std::vector<Finding>& findings) {
  Coverage out;
  std::set<std::string> all, skipped;
  for (const Finding& finding : findings) {
    all.insert(finding.check + finding.target);
    if (finding.status == Status::skip) skipped.insert(finding.check + finding.target);
  }
  out.checks_total = static_cast<int>(all.size());
  out.checks_run = out.checks_total - static_cast<int>(skipped.size());
  out.memory_share = out.sm_share = context.seen.gpus.empty() ? 0 : 1;
  for (const GpuObservations& gpu : context.seen.gpus) {
    const bool tested = gpu.memory_cold.has_value() && gpu.memory_cold->total_bytes > 0;
    out.memory_share =
        std::min(out.memory_share, tested ? static_cast<double>(gpu.memory_cold->tested_bytes) /
                                                static_cast<double>(gpu.memory_cold->total_bytes)
                                          : 0);
    const double n = gpu.identity.sm_count.value_or(0);
    out.sm_share = std::min(out.sm_share, gpu.sm_proof.has_value() && n > 0
                                              ? static_cast<double>(gpu.sm_proof->cold.size()) / n
                                              : 0);
  }
  const size_t n = context.seen.gpus.size();
  if (n > 1)
    out.pair_share =
        static_cast<double>(context.seen.pairs.size()) / static_cast<double>(n * (n - 1));
  return out;
}

}  // namespace

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::accept:
      return "ACCEPT";
    case Verdict::accept_with_notes:
      return "ACCEPT WITH NOTES";
    case Verdict::inconclusive:
      return "INCONCLUSIVE";
    case Verdict::reject:
      return "REJECT";
  }
  return "?";
}

Text verdict_text(Verdict verdict, Mode mode) {
  switch (verdict) {
    case Verdict::accept:
      if (mode == Mode::quick)
        return {"sound: nothing against buying it; --standard also tests how it bears heat",
                "没有问题，可以买；散热要用 --standard 测"};
      return {"sound: nothing against buying it", "没有问题，可以买"};
    case Verdict::accept_with_notes:
      return {"usable; read the notes before you agree on a price", "能用；看完备注再谈价"};
    case Verdict::inconclusive:
      return {"not proven: something that should have run could not", "无法判断：有该测的没测成"};
    case Verdict::reject:
      return {"do not accept it as it is", "不要按现状接受"};
  }
  return {};
}

int verdict_exit_code(Verdict verdict) {
  switch (verdict) {
    case Verdict::accept:
      return 0;
    case Verdict::accept_with_notes:
      return 5;
    case Verdict::inconclusive:
      return 3;
    case Verdict::reject:
      return 1;
  }
  return 3;
}

Verdict verdict_of(const std::vector<Finding>& findings) {
  bool fail = false, unknown = false, warn = false;
  for (const Finding& finding : findings) {
    fail = fail || finding.status == Status::fail;
    unknown = unknown || finding.status == Status::skip || finding.status == Status::inconclusive;
    warn = warn || finding.status == Status::warn;
  }
  if (fail) return Verdict::reject;
  // No finding at all proves nothing.
  if (unknown || findings.empty()) return Verdict::inconclusive;
  return warn ? Verdict::accept_with_notes : Verdict::accept;
}

Judgement judge(const Observations& seen, const CardDatabase& cards, const std::string& claim) {
  const Context context(seen, cards, claim);
  Judgement out;
  out.findings = run_checks(context);
  out.verdict = verdict_of(out.findings);
  for (int gpu = 0; gpu < static_cast<int>(seen.gpus.size()); ++gpu) {
    out.rows.push_back(context.row(gpu) == nullptr ? "" : context.row(gpu)->name);
  }
  out.coverage = coverage_of(context, out.findings);
  out.ranking = rank_speed(summarize(seen, cards, out.findings));
  return out;
}

}  // namespace lockstep::probe
