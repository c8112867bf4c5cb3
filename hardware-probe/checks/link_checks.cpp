// C19 nvlink.state_errors, C20 p2p.static, C21 p2p.correct, C22 p2p.perf, C23 collective.
#include <algorithm>
#include <cmath>

#include "hardware-probe/checks/context.h"
#include "hardware-probe/observe/pcie_rate.h"

namespace lockstep::probe {
namespace {

Text no_p2p_remedy() {
  return say(
      "set NCCL_P2P_DISABLE=1 and exchange through host memory; IOMMU and ACS off may repair it",
      "设 NCCL_P2P_DISABLE=1，改走主机内存；关闭 IOMMU 和 ACS 可能修好");
}

int64_t difference(const Maybe<int64_t>& before, const Maybe<int64_t>& after) {
  return before.has_value() && after.has_value() ? *after - *before : 0;
}

bool is_module(const Card& card) {
  return card.form.compare(0, 3, "SXM") == 0;
}

int64_t active_links(const NvlinkReport& seen) {
  return std::count_if(seen.links.begin(), seen.links.end(),
                       [](const NvlinkState& link) { return link.active; });
}

void judge_link_count(const Context& context, int gpu, const Card& card, Report& report) {
  const int64_t active = active_links(*context.gpu(gpu).nvlink);
  if (active >= card.nvlinks) return;
  if (active == 0) {
    report.add(Status::info,
               is_module(card)
                   ? say("no NVLink is connected: a module on an adapter or a board without NVLink",
                         "NVLink 全部未接：模组插在转接卡或无 NVLink 的底板上")
                   : say("no NVLink bridge", "没有 NVLink 桥"));
    return;
  }
  report.add(
      is_module(card) ? Status::fail : Status::warn,
      say("{} of {} NVLinks are up", "{1} 条 NVLink 中只有 {0} 条接通", active, card.nvlinks),
      say("reseat the module; then a link of the card or the board is dead",
          "重新安装模组；仍缺则卡或底板的链路坏了"));
}

void judge_link_errors(const NvlinkReport& seen, Report& report) {
  int64_t crc = 0, replay = 0, recovery = 0;
  for (const NvlinkState& link : seen.links) {
    crc += difference(link.crc_before, link.crc_after);
    replay += difference(link.replay_before, link.replay_after);
    recovery += difference(link.recovery_before, link.recovery_after);
  }
  if (recovery > 0) {
    report.add(Status::fail,
               say("an NVLink had to recover {} time(s)", "NVLink 恢复了 {} 次", recovery),
               say("reseat; do not use this link", "重新安装；不要用这条链路"));
  }
  const double rate = static_cast<double>(crc) / std::max(seen.load_s, 1.0);
  if (rate > kCrcRateFail.value) {
    report.add(Status::fail, kCrcRateFail, rate,
               say("{} NVLink CRC errors under load", "负载下有 {} 个 NVLink CRC 错误", crc),
               say("reseat the module, clean its connector", "重新安装模组，清洁接口"));
  } else if (crc + replay > 0) {
    report.add(Status::warn, kCrcRateFail, rate,
               say("{} NVLink CRC errors and {} replays under load",
                   "负载下有 {} 个 NVLink CRC 错误、{} 次重传", crc, replay));
  }
}

struct RungName {
  const char* key;
  const char* en;
  const char* zh;
};
constexpr RungName kRungs[] = {{"copy", "copy engine", "复制引擎"},
                               {"store", "stores by kernels", "内核写"},
                               {"load", "loads by kernels", "内核读"},
                               {"pingpong", "two kernels talking", "两内核对话"},
                               {"atomics", "atomics", "原子操作"}};

// False when the rung proves nothing.
bool judge_rung(const RungName& name, const Rung& rung, Report& report) {
  if (rung.outcome == "ok" || rung.outcome == "unsupported") return rung.outcome == "ok";
  if (rung.outcome == "wrong") {
    report.add(Status::fail,
               Text{fmt::format("{}: {} of {} words never reached the owner", name.en,
                                rung.wrong_words, rung.words),
                    fmt::format("{}：{} / {} 个字没有到达对方显存", name.zh, rung.wrong_words,
                                rung.words)},
               no_p2p_remedy());
  } else if (rung.outcome == "hang") {
    report.add(Status::fail,
               Text{fmt::format("{}: hangs ({})", name.en, rung.detail),
                    fmt::format("{}：卡死（{}）", name.zh, rung.detail)},
               no_p2p_remedy());
  } else {
    report.add(Status::fail,
               Text{fmt::format("{}: {}", name.en, rung.detail),
                    fmt::format("{}：{}", name.zh, rung.detail)},
               no_p2p_remedy());
  }
  return true;
}

void judge_latency(const PairObservations& pair, Report& report) {
  if (const auto flag = pair.latency_us.find("flag"); flag != pair.latency_us.end()) {
    const double us = flag->second;
    const Status status = us > kLatencyFail.value   ? Status::fail
                          : us > kLatencyPass.value ? Status::warn
                                                    : Status::pass;
    report.add(status, status == Status::fail ? kLatencyFail : kLatencyPass, us,
               say("a flag takes {:.2f} us to the other card", "标志到另一张卡要 {:.2f} 微秒", us),
               status == Status::pass ? Text{} : no_p2p_remedy());
  }
  if (pair.copy_4k_us.has_value() && *pair.copy_4k_us > kCopyLatencyFail.value) {
    report.add(
        Status::fail, kCopyLatencyFail, *pair.copy_4k_us,
        say("copying 4 KiB to the other card takes {:.1f} ms: the direct path is as good as broken",
            "向另一张卡传 4 KB 要 {:.1f} 毫秒：直连等于坏了", *pair.copy_4k_us / 1000),
        no_p2p_remedy());
  }
}

double link_theory(const Context& context, const PairObservations& pair) {
  const Card* card = context.row(pair.from);
  if (pair.nvlinks > 0 && card != nullptr && card->nvlink_gbps > 0)
    return pair.nvlinks * card->nvlink_gbps;
  return 0;
}

void judge_bandwidth(const Context& context, const PairObservations& pair, Report& report) {
  const double gbps = median(pair.copy_gbps);
  if (std::isnan(gbps)) {
    report.add(Status::skip, say("no peer copy was timed", "没有测到直连复制"));
    return;
  }
  if (const double theory = link_theory(context, pair); theory > 0) {
    const double share = gbps / theory;
    const Status status = share < kNvlinkShareFail.value   ? Status::fail
                          : share < kNvlinkSharePass.value ? Status::warn
                                                           : Status::pass;
    report.add(status, status == Status::fail ? kNvlinkShareFail : kNvlinkSharePass, share,
               say("{:.1f} of {:.0f} GB/s over {} NVLinks", "{2} 条 NVLink，{0:.1f} / {1:.0f} GB/s",
                   gbps, theory, pair.nvlinks));
    return;
  }
  const auto& link = context.gpu(pair.to).pcie_link;
  const double lanes =
      link.has_value() ? pcie_gbps(link->gen.value_or(0), link->width.value_or(0)) : 0;
  const bool slow = lanes > 0 && gbps < lanes * kPcieP2pShare.value;
  report.add(slow ? Status::warn : Status::pass, kPcieP2pShare, lanes > 0 ? gbps / lanes : 1,
             say("{:.1f} GB/s between the cards over PCIe", "两卡经 PCIe 直连 {:.1f} GB/s", gbps));
}

void judge_rung_of_sums(const char* en, const char* zh, const Rung& rung, Report& report) {
  if (rung.outcome == "ok" || rung.outcome == "unsupported" || rung.outcome.empty()) return;
  report.add(Status::fail,
             Text{fmt::format("{}: {} {}", en, rung.outcome, rung.detail),
                  fmt::format("{}：{} {}", zh, rung.outcome, rung.detail)},
             no_p2p_remedy());
}

void report_exact_sums(const Collective& seen, Report& report) {
  const bool own = seen.own.outcome == "ok", nccl = seen.nccl.outcome == "ok";
  if (!own && !nccl) {
    report.add(Status::info, say("exact sums through host memory; no other way was tried",
                                 "经主机内存求和精确；没有试其他方式"));
  } else if (!own) {
    report.add(Status::pass, say("exact sums by NCCL {}; own not tried",
                                 "NCCL {} 求和精确；未试自带的", seen.nccl_version));
  } else {
    report.add(Status::pass, nccl ? say("exact sums, own and NCCL {}",
                                        "求和精确，自带与 NCCL {} 都对", seen.nccl_version)
                                  : say("exact sums; NCCL not tried", "求和精确；未试 NCCL"));
  }
}

}  // namespace

void check_nvlink(const Context& context, int gpu, Report& report) {
  const Card* card = context.row(gpu);
  if (card != nullptr) judge_link_count(context, gpu, *card, report);
  judge_link_errors(*context.gpu(gpu).nvlink, report);
  if (report.empty()) {
    report.add(Status::pass,
               say("{} NVLinks up, no errors under load", "{} 条 NVLink 接通，负载下无错误",
                   active_links(*context.gpu(gpu).nvlink)));
  }
}

void check_p2p_static(const Context& context, int index, Report& report) {
  const PairObservations& pair = context.seen.pairs[static_cast<size_t>(index)];
  if (!pair.can_access.has_value()) {
    report.add(Status::skip, say("the driver did not say whether the cards reach each other",
                                 "驱动没有说明两卡能否直连"));
    return;
  }
  if (!*pair.can_access) {
    const bool by_design = context.row(pair.from) != nullptr && !context.row(pair.from)->p2p;
    const bool linked = pair.nvlinks > 0;
    report.add(linked ? Status::warn : Status::info,
               by_design ? say("this card has no peer access by design", "这种卡本来就没有直连")
                         : say("the driver offers no peer access between these cards",
                               "驱动不提供这两张卡之间的直连"),
               linked ? say("NVLink is there but unused: look at the topology and the driver",
                            "有 NVLink 却没用上：检查拓扑和驱动")
                      : Text{});
    return;
  }
  report.add(Status::pass,
             pair.nvlinks > 0
                 ? say("peer access over {} NVLinks", "经 {} 条 NVLink 直连", pair.nvlinks)
                 : say("peer access over PCIe ({})", "经 PCIe 直连（{}）", pair.ancestor));
}

void check_p2p_correct(const Context& context, int index, Report& report) {
  const PairObservations& pair = context.seen.pairs[static_cast<size_t>(index)];
  bool proven = false;
  for (const RungName& name : kRungs) {
    const auto rung = pair.rungs.find(name.key);
    if (rung != pair.rungs.end()) proven = judge_rung(name, rung->second, report) || proven;
  }
  if (!proven) {
    report.add(Status::skip, say("no rung of the ladder could be climbed", "一项直连测试都没能做"));
  } else if (report.empty()) {
    report.add(Status::pass,
               say("every word reached the owner on every path", "所有路径上每个字都到达对方显存"));
  }
}

void check_p2p_speed(const Context& context, int index, Report& report) {
  const PairObservations& pair = context.seen.pairs[static_cast<size_t>(index)];
  judge_latency(pair, report);
  judge_bandwidth(context, pair, report);
  const double bounce = median(pair.bounce_gbps);
  const double direct = median(pair.copy_gbps);
  if (!std::isnan(bounce) && !std::isnan(direct) && direct < bounce * kBounceRatio.value) {
    report.add(Status::warn, kBounceRatio, direct / bounce,
               say("direct copies {:.1f} GB/s, through host memory {:.1f}: prefer P2P off",
                   "直连 {:.1f} GB/s，绕道内存 {:.1f}：不如关掉直连", direct, bounce),
               no_p2p_remedy());
  }
}

void check_collective(const Context& context, int, Report& report) {
  const Collective& seen = *context.seen.collective;
  if (seen.control.outcome != "ok") {
    report.add(Status::inconclusive, say("even the control without peer access failed: {}",
                                         "连不走直连的对照组也失败：{}", seen.control.detail));
    return;
  }
  judge_rung_of_sums("own all-reduce", "自带 all-reduce", seen.own, report);
  judge_rung_of_sums("NCCL all-reduce", "NCCL all-reduce", seen.nccl, report);
  if (report.empty()) report_exact_sums(seen, report);
}

}  // namespace lockstep::probe
