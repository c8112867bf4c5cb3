// C10 mem.bandwidth, C11 mem.uniformity, C12 mem.patterns, C13 mem.patterns_hot, C14 mem.bitfade.
#include <algorithm>
#include <cmath>

#include "hardware-probe/checks/context.h"
#include "hardware-probe/observe/clock_reasons.h"

namespace lockstep::probe {
namespace {

// Bars for a card that the database does not know.
constexpr BandwidthBars kUnknownCardBars{0.80, 0.70, 0.74, 0.64};

void judge_share(const char* en, const char* zh, const std::vector<double>& samples, double theory,
                 double pass, double fail, Report& report) {
  const double gbps = median(samples);
  if (std::isnan(gbps)) {
    report.add(Status::skip,
               Text{fmt::format("{} was not timed", en), fmt::format("没有测到{}", zh)});
    return;
  }
  const double share = gbps / theory;
  const Status status = share < fail ? Status::fail : share < pass ? Status::warn : Status::pass;
  Finding& finding = report.add(
      status,
      Text{fmt::format("{} {:.0f} GB/s, {:.1f} % of {:.0f}", en, gbps, 100 * share, theory),
           fmt::format("{} {:.0f} GB/s，为理论值 {:.0f} 的 {:.1f} %", zh, gbps, theory,
                       100 * share)},
      status == Status::pass ? Text{}
                             : say("the memory does not reach its clock's rate; run again with the "
                                   "card cool and unused",
                                   "显存达不到应有速度；在冷却且无人使用时重测"));
  finding.value = share;
  finding.unit = "share";
  finding.threshold = status == Status::fail ? fail : pass;
  finding.source = "card database, field bars";
}

void judge_errors(const MemoryTest& test, Report& report) {
  if (test.error_words > 0) {
    std::string where;
    if (!test.errors.empty()) {
      const MemoryError& first = test.errors.front();
      where = fmt::format("{:#x}: {:#018x} != {:#018x} ({})", first.offset, first.actual,
                          first.expected, first.pattern);
    }
    report
        .add(Status::fail,
             say("{} wrong word(s) in memory, first at {}", "显存有 {} 个错字，首个在 {}",
                 test.error_words, where),
             say("the memory is defective: do not buy", "显存坏了：不要买"))
        .value = static_cast<double>(test.error_words);
  }
  if (test.ecc_uncorrected_delta.value_or(0) > 0) {
    report.add(Status::fail, say("{} uncorrectable ECC error(s) during the test",
                                 "测试中有 {} 个不可纠正的 ECC 错误", *test.ecc_uncorrected_delta));
  }
  if (test.ecc_corrected_delta.value_or(0) > 0) {
    report.add(Status::warn, say("{} corrected ECC error(s) during the test",
                                 "测试中有 {} 个已纠正的 ECC 错误", *test.ecc_corrected_delta));
  }
}

void judge_test(const MemoryTest& test, Report& report) {
  judge_errors(test, report);
  const double coverage = test.total_bytes > 0 ? static_cast<double>(test.tested_bytes) /
                                                     static_cast<double>(test.total_bytes)
                                               : 0;
  const Status status = coverage < kCoverageLeast.value  ? Status::inconclusive
                        : coverage < kCoveragePass.value ? Status::warn
                                                         : Status::pass;
  report.add(status, kCoveragePass, coverage,
             say("{:.1f} % of the memory tested with {} patterns",
                 "用 {1} 种图案测了 {0:.1f} % 的显存", 100 * coverage, test.patterns.size()),
             status == Status::pass
                 ? Text{}
                 : say("stop what else uses the memory, run again", "停掉占用显存的程序再测"));
}

}  // namespace

void check_memory_bandwidth(const Context& context, int gpu, Report& report) {
  const GpuIdentity& identity = context.gpu(gpu).identity;
  const MemoryBandwidth& seen = *context.gpu(gpu).memory_bandwidth;
  if (identity.max_memory_mhz.value_or(0) <= 0 || identity.bus_bits.value_or(0) <= 0) {
    report.add(Status::inconclusive,
               say("without memory clock and bus width there is no theory to compare with",
                   "没有显存频率和位宽，无法与理论值比较"));
    return;
  }
  const Card* card = context.row(gpu);
  const BandwidthBars bars = card != nullptr ? card->bars : kUnknownCardBars;
  const double theory = theoretical_gbps(*identity.max_memory_mhz, *identity.bus_bits);
  judge_share("read", "读", seen.read_gbps, theory, bars.read_pass, bars.read_fail, report);
  judge_share("copy", "复制", seen.copy_gbps, theory, bars.copy_pass, bars.copy_fail, report);
  if ((seen.reasons.value_or(0) & (kReasonThermal | kReasonPowerBrake)) != 0) {
    report.add(Status::info,
               say("measured while the card was slowed down", "测量时卡处于降频状态"));
  }
}

void check_memory_map(const Context& context, int gpu, Report& report) {
  const std::vector<ChunkRate>& map = *context.gpu(gpu).memory_map;
  std::vector<double> rates;
  for (const ChunkRate& chunk : map) rates.push_back(chunk.gbps);
  const double middle = median(rates);
  if (std::isnan(middle) || middle <= 0) {
    report.add(Status::skip, say("no chunk was timed", "没有测到任何分块"));
    return;
  }
  const auto slowest =
      std::min_element(map.begin(), map.end(),
                       [](const ChunkRate& a, const ChunkRate& b) { return a.gbps < b.gbps; });
  const double ratio = slowest->gbps / middle;
  const Status status = ratio < kChunkFail.value   ? Status::fail
                        : ratio < kChunkPass.value ? Status::warn
                                                   : Status::pass;
  report.add(status, status == Status::fail ? kChunkFail : kChunkPass, ratio,
             say("slowest of {} chunks at {} MiB: {:.0f} GB/s, median {:.0f}",
                 "{} 个分块中最慢的在 {} MiB：{:.0f} GB/s，中位数 {:.0f}", map.size(),
                 slowest->offset_mib, slowest->gbps, middle),
             status == Status::pass
                 ? Text{}
                 : say("a memory stack or channel is sick", "某个显存堆栈或通道有病"));
}

void check_memory_cold(const Context& context, int gpu, Report& report) {
  judge_test(*context.gpu(gpu).memory_cold, report);
}
void check_memory_hot(const Context& context, int gpu, Report& report) {
  judge_test(*context.gpu(gpu).memory_hot, report);
}
void check_bit_fade(const Context& context, int gpu, Report& report) {
  judge_test(*context.gpu(gpu).bit_fade, report);
}

}  // namespace lockstep::probe
