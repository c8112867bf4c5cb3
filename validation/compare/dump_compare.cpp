#include "validation/compare/dump_compare.h"

#include <map>

namespace lockstep {
namespace {

void judge(TapRow& row, Verdict verdict, const std::string& reason) {
  if (reason.empty() || merge(row.verdict, verdict) == row.verdict) return;
  row.verdict = verdict;
  row.reason = reason;
}

}  // namespace

DumpReport compare_dumps(const TapDump& a, const TapDump& b, const TensorLimit& limit) {
  std::map<std::string, TapRow, TapOrder> rows;
  for (const auto& [tap, judged] : a.taps) {
    TapRow& row = rows[tap];
    const auto other = b.taps.find(tap);
    if (other == b.taps.end()) {
      judge(row, Verdict::error, "only in the first dump");
      continue;
    }
    row.limit = limit;
    row.diff = compare_tensors(judged, other->second);
    judge(row, Verdict::mistrusted, row.diff.vacuous);
    if (row.diff.vacuous.empty()) judge(row, Verdict::fail, violation(row.diff, limit));
  }
  for (const auto& [tap, unused] : b.taps) {
    if (a.taps.count(tap) == 0) judge(rows[tap], Verdict::error, "only in the second dump");
  }
  for (const TapDump* dump : {&a, &b}) {
    for (const std::string& tap : dump->rank_differences) {
      judge(rows[tap], Verdict::fail, "ranks differ at " + tap);
    }
  }
  DumpReport report;
  if (rows.empty()) report.verdict = Verdict::mistrusted;
  for (auto& [tap, row] : rows) {
    row.tap = tap;
    report.verdict = merge(report.verdict, row.verdict);
    if (row.verdict != Verdict::pass && report.first_bad.empty()) report.first_bad = tap;
    report.rows.push_back(std::move(row));
  }
  return report;
}

}  // namespace lockstep
