#include <cmath>

#include "hardware-probe/checks/check_table.h"
#include "hardware-probe/report/judgement.h"
#include "hardware-probe/report/summary.h"

namespace lockstep::probe {
namespace {

constexpr Threshold kBandwidthDrift{0.03, "share", "same card, same kernels: 3 %"};
constexpr Threshold kClockDrift{0.05, "share",
                                "plateau clocks move with the room's temperature: 5 %"};

const GpuObservations* same_card(const GpuObservations& gpu, const Observations& older) {
  for (const GpuObservations& other : older.gpus) {
    const bool by_uuid = gpu.identity.uuid.has_value() && gpu.identity.uuid == other.identity.uuid;
    const bool by_serial =
        gpu.identity.serial.has_value() && gpu.identity.serial == other.identity.serial;
    if (by_uuid || by_serial) return &other;
  }
  return nullptr;
}

void compare_counter(const char* en, const char* zh, int64_t before, int64_t now, Report& report) {
  if (now < before) {
    report.add(Status::fail,
               Text{fmt::format("{} fell from {} to {}", en, before, now),
                    fmt::format("{}从 {} 降到 {}", zh, before, now)},
               say("history was cleared or this is another card", "历史被清过，或不是同一张卡"));
  } else if (now > before) {
    report.add(Status::warn, Text{fmt::format("{} rose from {} to {}", en, before, now),
                                  fmt::format("{}从 {} 升到 {}", zh, before, now)});
  }
}

void compare_history(const GpuHistory& before, const GpuHistory& now, Report& report) {
  if (before.retired.has_value() && now.retired.has_value()) {
    compare_counter("retired pages", "退役页", static_cast<int64_t>(before.retired->size()),
                    static_cast<int64_t>(now.retired->size()), report);
  }
  if (before.aggregate_corrected.has_value() && now.aggregate_corrected.has_value()) {
    compare_counter("lifetime corrected errors", "累计已纠正错误", *before.aggregate_corrected,
                    *now.aggregate_corrected, report);
  }
  if (before.aggregate_uncorrected.has_value() && now.aggregate_uncorrected.has_value()) {
    compare_counter("lifetime uncorrected errors", "累计不可纠正错误",
                    *before.aggregate_uncorrected, *now.aggregate_uncorrected, report);
  }
}

void compare_value(const char* en, const char* zh, double before, double now,
                   const Threshold& drift, Report& report) {
  if (!(before > 0) || !(now > 0)) return;
  const double change = now / before - 1;
  if (change < -drift.value) {
    report.add(Status::warn, drift, change,
               Text{fmt::format("{}: {:.0f} before, {:.0f} now ({:+.1f} %)", en, before, now,
                                100 * change),
                    fmt::format("{}：之前 {:.0f}，现在 {:.0f}（{:+.1f} %）", zh, before, now,
                                100 * change)});
  }
}

void compare_card(const GpuObservations& gpu, const GpuObservations& before,
                  const CardSummary& now_s, const CardSummary& before_s, Report& report) {
  if (gpu.identity.uuid != before.identity.uuid || gpu.identity.serial != before.identity.serial) {
    report.add(Status::fail, say("UUID or serial number changed", "UUID 或序列号变了"),
               say("this is another card", "不是同一张卡"));
  }
  if (before.history.has_value() && gpu.history.has_value())
    compare_history(*before.history, *gpu.history, report);
  compare_value("read GB/s", "读 GB/s", before_s.read_gbps, now_s.read_gbps, kBandwidthDrift,
                report);
  compare_value("clock under load, MHz", "负载频率 MHz", before_s.together_mhz, now_s.together_mhz,
                kClockDrift, report);
  if (report.empty()) report.add(Status::pass, say("as in the older report", "与旧报告一致"));
}

}  // namespace

std::vector<Finding> compare_runs(const Observations& seen, const Observations& older,
                                  const CardDatabase& cards) {
  std::vector<Finding> out;
  const MachineSummary now = summarize(seen, cards, run_checks(Context(seen, cards, "")));
  const MachineSummary before = summarize(older, cards, run_checks(Context(older, cards, "")));
  bool any = false;
  for (size_t i = 0; i < seen.gpus.size(); ++i) {
    const GpuObservations* other = same_card(seen.gpus[i], older);
    if (other == nullptr) continue;
    any = true;
    Report report("compare", "compare", gpu_target(static_cast<int>(i)));
    compare_card(seen.gpus[i], *other, now.cards[i],
                 before.cards[static_cast<size_t>(other - older.gpus.data())], report);
    for (Finding& finding : report.take()) out.push_back(std::move(finding));
  }
  Report report("compare", "compare", "host");
  if (!any) {
    report.add(Status::info, say("the older report is of other cards", "旧报告是别的卡"));
  }
  for (const Text& line : rank_difference(now, before)) report.add(Status::info, line);
  for (Finding& finding : report.take()) out.push_back(std::move(finding));
  return out;
}

}  // namespace lockstep::probe
