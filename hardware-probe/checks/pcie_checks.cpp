// C07 pcie.link, C08 pcie.bandwidth, C09 pcie.errors.
#include <algorithm>
#include <cmath>

#include "hardware-probe/checks/context.h"
#include "hardware-probe/observe/pcie_rate.h"

namespace lockstep::probe {

namespace {

Text contact_remedy() {
  return say("clean the contacts, another slot, no riser", "清洁金手指，换插槽，不用转接线");
}

// Errors that the link repaired by itself: a few are a note, many a bad contact.
void judge_count(int64_t count, double minutes, const Text& what, Report& report) {
  const double rate = static_cast<double>(count) / std::max(minutes, 1.0);
  const Status status = rate > kReplaysPerMinuteFail.value ? Status::fail
                        : count > 0                        ? Status::warn
                                                           : Status::pass;
  report.add(status, kReplaysPerMinuteFail, rate,
             Text{fmt::format("{} {} during the run", count, what.en),
                  fmt::format("运行中有 {} {}", count, what.zh)},
             status == Status::pass ? Text{} : contact_remedy());
}

}  // namespace

void check_pcie_link(const Context& context, int gpu, Report& report) {
  const PcieLink& seen = *context.gpu(gpu).pcie_link;
  const GpuIdentity& identity = context.gpu(gpu).identity;
  if (!seen.width.has_value() || !seen.gen.has_value()) {
    report.add(Status::skip,
               say("the driver does not tell the link's state", "驱动没有给出链路状态"));
    return;
  }
  const Card* card = context.row(gpu);
  const int width = card != nullptr ? card->pcie_width : identity.max_pcie_width.value_or(16);
  const int gen = card != nullptr ? card->pcie_gen : identity.max_pcie_gen.value_or(3);
  const Text state =
      say("gen {} x{} under load, the card can gen {} x{}", "负载下 gen {} x{}，卡支持 gen {} x{}",
          *seen.gen, *seen.width, gen, width);
  const bool tiny = (*seen.width <= 1 && width > 1) || (*seen.gen <= 1 && gen > 1);
  if (tiny) {
    report
        .add(Status::fail, state,
             say("another slot, no riser; clean the contacts", "换插槽，不用转接线；清洁金手指"))
        .value = *seen.width;
  } else if (*seen.width < width) {
    report
        .add(Status::warn, state,
             say("another slot, no riser; clean the contacts", "换插槽，不用转接线；清洁金手指"))
        .value = *seen.width;
  } else if (*seen.gen < gen) {
    report.add(Status::info, state);
  } else {
    report.add(Status::pass, state).value = *seen.width;
  }
}

void check_pcie_bandwidth(const Context& context, int gpu, Report& report) {
  const TransferRates& seen = *context.gpu(gpu).transfers;
  if (seen.wrong_words > 0) {
    report.add(Status::fail,
               say("{} words arrived wrong over PCIe", "有 {} 个字经 PCIe 传错", seen.wrong_words),
               say("another slot or board; then the card is bad", "换插槽或主板；仍错就是卡坏"));
  }
  const double slower = std::min(median(seen.h2d_gbps), median(seen.d2h_gbps));
  const auto& link = context.gpu(gpu).pcie_link;
  if (std::isnan(slower)) {
    report.add(Status::skip, say("no transfer was timed", "没有测到传输"));
    return;
  }
  if (!link.has_value() || !link->gen.has_value() || !link->width.has_value()) {
    report.add(Status::info, say("{:.1f} GB/s; the link's state is unknown",
                                 "{:.1f} GB/s；链路状态未知", slower));
    return;
  }
  const double theory = pcie_gbps(*link->gen, *link->width);
  const double share = theory > 0 ? slower / theory : 0;
  const Text state = say("{:.1f} GB/s to and {:.1f} from the card, lanes carry {:.1f}",
                         "上传 {:.1f} GB/s，下载 {:.1f}，通道上限 {:.1f}", median(seen.h2d_gbps),
                         median(seen.d2h_gbps), theory);
  const Status status = share < kPcieShareFail.value   ? Status::fail
                        : share < kPcieSharePass.value ? Status::warn
                                                       : Status::pass;
  report.add(status, status == Status::fail ? kPcieShareFail : kPcieSharePass, share, state,
             status == Status::pass ? Text{}
                                    : say("look for a shared switch, a distant CPU or power saving",
                                          "检查是否共用交换芯片、跨 CPU 或省电设置"));
}

void check_pcie_errors(const Context& context, int gpu, Report& report) {
  const PcieErrors& seen = *context.gpu(gpu).pcie_errors;
  if (seen.replays_before.has_value() && seen.replays_after.has_value()) {
    judge_count(*seen.replays_after - *seen.replays_before, seen.minutes,
                {"PCIe replays", "次 PCIe 重传"}, report);
  }
  if (seen.aer_before.has_value() && seen.aer_after.has_value()) {
    judge_count(seen.aer_after->correctable - seen.aer_before->correctable, seen.minutes,
                {"corrected PCIe errors on the way to the card", "个已纠正的 PCIe 链路错误"},
                report);
    if (const int64_t lost = seen.aer_after->uncorrectable - seen.aer_before->uncorrectable;
        lost > 0) {
      report.add(
          Status::fail,
          say("{} PCIe error(s) that could not be corrected", "有 {} 个无法纠正的 PCIe 错误", lost),
          contact_remedy());
    }
  }
  if (report.empty()) {
    report.add(Status::info,
               say("neither the driver nor the kernel counts PCIe errors on this machine",
                   "这台机器的驱动和内核都不提供 PCIe 错误计数"));
  }
}

}  // namespace lockstep::probe
