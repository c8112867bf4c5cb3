// C02 gpu.identity, C04 gpu.config, C05 gpu.history.
#include <algorithm>
#include <cmath>

#include "hardware-probe/checks/context.h"

namespace lockstep::probe {
namespace {

// Compares what a card says of itself with its row. A field that the database marks as unverified
// can only give a note: the database may be wrong there.
class Comparison {
 public:
  Comparison(const Card& card, Report& report) : card_(card), report_(report) {}

  template <typename T>
  void near(const char* field, const Maybe<T>& seen, double expected, double tolerance,
            const Threshold& why) {
    if (!seen.has_value() || expected <= 0) return;
    const double ratio = static_cast<double>(*seen) / expected;
    if (std::abs(ratio - 1.0) <= tolerance) return;
    contradict(field, fmt::format("{}", *seen), fmt::format("{:g}", expected), why.source);
  }

  void equal(const char* field, const Maybe<std::string>& seen, const std::string& expected) {
    if (seen.has_value() && *seen != expected) contradict(field, *seen, expected, "card database");
  }

  void prefix(const char* field, const Maybe<std::string>& seen, const std::string& expected) {
    if (!seen.has_value() || seen->empty() || expected.empty()) return;
    if (seen->compare(0, expected.size(), expected) != 0) {
      contradict(field, *seen, expected + "*", "card database");
    }
  }

 private:
  void contradict(const char* field, const std::string& seen, const std::string& expected,
                  const char* source) {
    const bool unverified = std::find(card_.unverified.begin(), card_.unverified.end(), field) !=
                            card_.unverified.end();
    if (unverified) {
      report_.add(Status::warn, say("{} is {}; the database has {}, not verified",
                                    "{} 为 {}；数据库记为 {}，未经核实", field, seen, expected));
      return;
    }
    Finding& finding = report_.add(
        Status::fail,
        say("{} is {}, a {} has {}", "{} 为 {}，而 {} 应为 {}", field, seen, card_.name, expected),
        say("this is not the card that its PCI id names, or it was altered: do not buy",
            "卡与其 PCI 编号不符，或被改动过：不要买"));
    finding.source = source;
  }

  const Card& card_;
  Report& report_;
};

void compare_with_row(const GpuIdentity& seen, const Card& card, Comparison& compare) {
  compare.equal("cc", seen.compute_capability, card.compute_capability);
  compare.near("sm", seen.sm_count, card.sm, 0, kClockTolerance);
  compare.near("bus_bits", seen.bus_bits, card.bus_bits, 0, kClockTolerance);
  compare.near("memory_mhz", seen.max_memory_mhz, card.memory_mhz, kClockTolerance.value,
               kClockTolerance);
  compare.near("max_sm_mhz", seen.max_sm_mhz, card.max_sm_mhz, kBoostTolerance.value,
               kBoostTolerance);
  compare.near("l2_kib", seen.l2_kib, card.l2_kib, kCacheTolerance.value, kCacheTolerance);
  compare.near("fb_mib", seen.fb_mib, static_cast<double>(card.fb_mib), kMemorySizeTolerance.value,
               kMemorySizeTolerance);
  compare.prefix("vbios", seen.vbios, card.vbios_prefix);
  compare.prefix("board", seen.inforom, card.board);
}

// What a card has of another by its clocks and units; what it really does, C10 and C16 measure.
struct Shares {
  double bandwidth = 0, fp32 = 0, matrix = 0;

  double least() const { return std::min({bandwidth, fp32, matrix}); }
};

Shares shares_of(const GpuIdentity& seen, const Card& card, const Card& claimed) {
  const double clocks = static_cast<double>(seen.sm_count.value_or(card.sm)) *
                        seen.max_sm_mhz.value_or(card.max_sm_mhz) /
                        (static_cast<double>(claimed.sm) * claimed.max_sm_mhz);
  Shares out;
  out.bandwidth = theoretical_gbps(seen.max_memory_mhz.value_or(card.memory_mhz),
                                   seen.bus_bits.value_or(card.bus_bits)) /
                  claimed.theory_gbps();
  out.fp32 = clocks * card.fp32_fma_per_sm / claimed.fp32_fma_per_sm;
  // A card without matrix units may be claimed: then nothing of them can be missing.
  out.matrix =
      claimed.hmma_fma_per_sm > 0 ? clocks * card.hmma_fma_per_sm / claimed.hmma_fma_per_sm : 1;
  return out;
}

// Another card than was sold is a note where it is a full variant of the same chip, and nothing
// else speaks against it.
void check_claim(const Context& context, int gpu, Report& report) {
  const Card* card = context.row(gpu);
  if (context.claim.empty() || (card != nullptr && context.claim == card->name)) return;
  const GpuIdentity& seen = context.gpu(gpu).identity;
  const Text refusal = say("not what was sold: do not buy", "货不对板：不要买");
  if (card == nullptr) {
    report.add(Status::fail,
               say("claimed to be a {}, but its PCI id is {}", "声称是 {}，但 PCI 编号是 {}",
                   context.claim, seen.pci_id),
               refusal);
    return;
  }
  const Card& claimed = context.cards.get(context.claim);
  const Shares shares = shares_of(seen, *card, claimed);
  const bool variant = claimed.family == card->family && claimed.fb_mib == card->fb_mib &&
                       (card->p2p || !claimed.p2p) && shares.least() >= kVariantShare.value &&
                       !report.has(Status::fail);
  const auto percent = [](double share) { return 100 * (share - 1); };
  report.add(
      variant ? Status::warn : Status::fail, kVariantShare, shares.least(),
      say("this is a {}, not a {}; by its clocks: memory bandwidth {:+.0f} %, FP32 {:+.0f} "
          "%, FP16 matrix {:+.0f} %",
          "这是 {}，不是 {}；按频率算：显存带宽 {:+.0f} %，FP32 {:+.0f} %，FP16 矩阵 {:+.0f} "
          "%",
          card->name, claimed.name, percent(shares.bandwidth), percent(shares.fp32),
          percent(shares.matrix)),
      variant ? say("agree on the price for what it is", "按它实际的型号谈价") : refusal);
}

void check_measured_against_row(const Context& context, int gpu, const Card& card, Report& report) {
  const auto& bandwidth = context.gpu(gpu).memory_bandwidth;
  if (!bandwidth.has_value() || bandwidth->read_gbps.empty()) return;
  const double ratio = median(bandwidth->read_gbps) / card.theory_gbps();
  if (ratio <= kAboveTheory.value) return;
  report.add(Status::fail, kAboveTheory, ratio,
             say("memory reads {:.2f} times as fast as a {} can",
                 "显存读速是 {1} 上限的 {0:.2f} 倍", ratio, card.name),
             say("the card is another one than it says", "卡的真实型号与自报不符"));
}

void check_siblings(const Context& context, int gpu, Report& report) {
  for (int other = 0; other < gpu; ++other) {
    const GpuIdentity& a = context.gpu(other).identity;
    const GpuIdentity& b = context.gpu(gpu).identity;
    if (context.row(other) != context.row(gpu)) {
      report.add(Status::info, say("{} and {} differ: a pair runs at the slower one's speed",
                                   "{} 与 {} 型号不同：合跑时按慢的那张走", context.label(other),
                                   context.label(gpu)));
    } else if (a.vbios != b.vbios) {
      report.add(Status::warn,
                 say("vBIOS {} differs from gpu{}'s {}", "vBIOS {} 与 gpu{} 的 {} 不同",
                     b.vbios.value_or("?"), other, a.vbios.value_or("?")));
    }
  }
}

void check_bar1(const GpuIdentity& seen, const Card* card, Report& report) {
  if (!seen.bar1_mib.has_value() || !seen.fb_mib.has_value() ||
      *seen.bar1_mib >= *seen.fb_mib * 96 / 100)
    return;
  const bool by_design = card != nullptr && *seen.bar1_mib >= card->bar1_mib;
  report.add(by_design ? Status::info : Status::warn,
             say("BAR1 is {} MiB for {} MiB of memory: direct access by other devices is limited",
                 "BAR1 只有 {} MiB，显存 {} MiB：其他设备直连受限", *seen.bar1_mib, *seen.fb_mib),
             by_design ? Text{}
                       : say("switch on Above 4G Decoding / Resizable BAR",
                             "打开 Above 4G Decoding / Resizable BAR"));
}

void check_pages(const std::vector<RetiredPage>& pages, int64_t newest_s, Report& report) {
  const auto n = static_cast<double>(pages.size());
  const auto double_bit = std::count_if(
      pages.begin(), pages.end(), [](const RetiredPage& page) { return page.cause == "dbe"; });
  const auto window_s = static_cast<int64_t>(kRecentDays.value) * 86400;
  const auto recent = std::count_if(pages.begin(), pages.end(), [&](const RetiredPage& page) {
    return page.timestamp_s > 0 && newest_s - page.timestamp_s <= window_s;
  });
  if (pages.empty()) return;
  const Text remedy = say("the memory is wearing out: do not buy", "显存在老化：不要买");
  if (n >= kRetiredEndOfLife.value) {
    report.add(Status::fail, kRetiredEndOfLife, n,
               say("{} retired pages: end of life", "{} 个退役页：寿命已尽", pages.size()), remedy);
  } else if (double_bit > 0) {
    report.add(
        Status::fail,
        say("{} page(s) retired after double-bit errors", "{} 个页因双比特错误退役", double_bit),
        remedy);
  } else if (n >= kRetiredPagesFail.value) {
    report.add(Status::fail, kRetiredPagesFail, n,
               say("{} retired pages", "{} 个退役页", pages.size()), remedy);
  } else if (recent >= static_cast<std::ptrdiff_t>(kRetiredRecentFail.value)) {
    report.add(
        Status::fail, kRetiredRecentFail, static_cast<double>(recent),
        say("{} pages retired within 90 days of each other", "90 天内退役了 {} 个页", recent),
        remedy);
  } else {
    report.add(Status::warn, kRetiredPagesFail, n,
               say("{} retired page(s)", "{} 个退役页", pages.size()),
               say("usable; ask for a lower price", "能用；可以压价"));
  }
}

void check_rows(const GpuHistory& seen, Report& report) {
  if (seen.remap_failed.value_or(false)) {
    report.add(Status::fail, say("row remapping has failed", "行重映射已失败"),
               say("the maker exchanges such cards: do not buy", "厂家会换的卡：不要买"));
  }
  if (seen.banks_without_spare.value_or(0) > 0) {
    report.add(Status::fail, say("{} memory bank(s) have no spare rows left",
                                 "{} 个显存 bank 已无备用行", *seen.banks_without_spare));
  }
  if (seen.sram_exceeded.value_or(false)) {
    report.add(Status::fail, say("the SRAM error threshold is exceeded", "SRAM 错误超过阈值"));
  }
  if (seen.remap_pending.value_or(false)) {
    report.add(Status::inconclusive, say("a row remapping is pending", "有待生效的行重映射"),
               say("reset the card, run again", "复位后重测"));
  }
  if (seen.remapped_uncorrected.value_or(0) > 0) {
    report.add(Status::warn, say("{} row(s) remapped after uncorrectable errors",
                                 "{} 行因不可纠正错误被重映射", *seen.remapped_uncorrected));
  }
}

void check_old_xids(const Context& context, int gpu, Report& report) {
  if (!context.seen.host.kernel_log.has_value()) return;
  for (const KernelLine& line : *context.seen.host.kernel_log) {
    if (line.bus != context.gpu(gpu).identity.bus_id || !is_hardware_xid(line.xid)) continue;
    report
        .add(Status::warn,
             say("the kernel log holds Xid {} of this card from before this run",
                 "内核日志里有这张卡在本次测试之前的 Xid {}", line.xid),
             say("reboot, run --standard; buy only if it does not come back",
                 "重启后跑 --standard；不再出现才买"))
        .value = line.xid;
  }
}

}  // namespace

void check_identity(const Context& context, int gpu, Report& report) {
  const GpuIdentity& seen = context.gpu(gpu).identity;
  if (!seen.sm_count.has_value() || !seen.max_memory_mhz.has_value() ||
      !seen.bus_bits.has_value()) {
    report.add(Status::inconclusive,
               say("the driver does not tell SM count, memory clock and bus width",
                   "驱动没有给出 SM 数、显存频率和位宽"));
    check_claim(context, gpu, report);
    return;
  }
  if (seen.inforom_valid.has_value() && !*seen.inforom_valid) {
    report.add(Status::fail, say("the InfoROM is corrupt", "InfoROM 损坏"),
               say("the card was flashed or damaged: do not buy", "卡被刷过或已损坏：不要买"));
  }
  check_siblings(context, gpu, report);
  const Card* card = context.row(gpu);
  const double theory = theoretical_gbps(*seen.max_memory_mhz, *seen.bus_bits);
  if (card == nullptr) {
    report.add(Status::info,
               say("{} ({}) is not in the database; judged by the formula alone",
                   "{}（{}）不在数据库里；只按公式判断", seen.name.value_or("?"), seen.pci_id));
    check_claim(context, gpu, report);
    return;
  }
  Comparison compare(*card, report);
  compare_with_row(seen, *card, compare);
  check_measured_against_row(context, gpu, *card, report);
  check_claim(context, gpu, report);
  if (card->modified) {
    report.add(Status::info, say("memory enlarged by a workshop ({} MiB)", "显存被改大过（{} MiB）",
                                 card->fb_mib));
  }
  report.conclude(say("{}: {} SM, {} MHz, memory {} MHz x {} bit = {:.0f} GB/s",
                      "{}：{} SM，{} MHz，显存 {} MHz x {} 位 = {:.0f} GB/s", card->name,
                      *seen.sm_count, seen.max_sm_mhz.value_or(0), *seen.max_memory_mhz,
                      *seen.bus_bits, theory));
}

void check_config(const Context& context, int gpu, Report& report) {
  const GpuConfig& seen = *context.gpu(gpu).config;
  const Card* card = context.row(gpu);
  if (seen.other_processes.value_or(0) > 0) {
    report.add(Status::inconclusive,
               say("{} other process(es) use this card: no speed can be trusted",
                   "有 {} 个其他进程在用这张卡：速度数字不可信", *seen.other_processes),
               say("stop them and run again", "停掉它们再测"));
  }
  if (card != nullptr && card->ecc && seen.ecc_current.has_value() && !*seen.ecc_current) {
    report.add(Status::warn, say("ECC is off", "ECC 已关闭"),
               say("nvidia-smi -e 1, reboot, run again", "nvidia-smi -e 1，重启后重测"));
  }
  if (seen.ecc_pending.has_value() && seen.ecc_current.has_value() &&
      *seen.ecc_pending != *seen.ecc_current) {
    report.add(Status::warn, say("an ECC change waits for a reboot", "ECC 设置要重启才生效"),
               say("reboot, run again", "重启后重测"));
  }
  if (seen.power_limit_w.has_value() && seen.power_default_w.has_value() &&
      *seen.power_limit_w < *seen.power_default_w - 1) {
    report.add(Status::warn,
               say("power is limited to {:.0f} of {:.0f} W", "功耗被限到 {:.0f} W（默认 {:.0f} W）",
                   *seen.power_limit_w, *seen.power_default_w),
               say("nvidia-smi -pl {:.0f}", "nvidia-smi -pl {:.0f}", *seen.power_default_w));
  }
  if (seen.app_sm_mhz.has_value() && seen.default_app_sm_mhz.has_value() &&
      *seen.app_sm_mhz < *seen.default_app_sm_mhz) {
    report.add(Status::warn,
               say("application clock set to {} MHz, default {}", "应用频率被设为 {} MHz，默认 {}",
                   *seen.app_sm_mhz, *seen.default_app_sm_mhz),
               say("nvidia-smi -rac", "nvidia-smi -rac"));
  }
  if (seen.mig.value_or(false)) {
    report.add(Status::inconclusive,
               say("MIG is on: only a slice of the card was seen", "MIG 已开：只能看到卡的一部分"),
               say("nvidia-smi -mig 0", "nvidia-smi -mig 0"));
  }
  if (seen.compute_mode.value_or("default") != "default") {
    report.add(Status::info, say("compute mode is {}", "计算模式为 {}", *seen.compute_mode));
  }
  if (!seen.persistence.value_or(true)) {
    report.add(Status::info, say("persistence mode is off", "持久模式未开"));
  }
  check_bar1(context.gpu(gpu).identity, card, report);
  report.conclude(say("settings read", "设置已读取"));
}

void check_history(const Context& context, int gpu, Report& report) {
  const GpuHistory& seen = *context.gpu(gpu).history;
  const Card* card = context.row(gpu);
  if (card != nullptr && card->history == "pages" && !seen.retired.has_value()) {
    report.add(Status::skip, say("the driver does not tell retired pages", "驱动没有给出退役页"));
  }
  if (card != nullptr && card->history == "rows" && !seen.remap_failed.has_value()) {
    report.add(Status::skip, say("the driver does not tell remapped rows", "驱动没有给出行重映射"));
  }
  if (seen.retired.has_value()) {
    int64_t newest = 0;
    for (const RetiredPage& page : *seen.retired) newest = std::max(newest, page.timestamp_s);
    check_pages(*seen.retired, newest, report);
    const int64_t aggregate =
        seen.aggregate_corrected.value_or(-1) + seen.aggregate_uncorrected.value_or(-1);
    if (!seen.retired->empty() && aggregate == 0) {
      report.add(
          Status::warn,
          say("pages are retired but the lifetime error counters are zero: history was cleared",
              "有退役页而累计错误计数为零：历史被清过"),
          say("ask the seller why", "问卖家原因"));
    }
  }
  if (seen.retired_pending.value_or(false)) {
    report.add(Status::inconclusive, say("a page retirement is pending", "有待生效的页退役"),
               say("reboot, run again", "重启后重测"));
  }
  if (seen.volatile_uncorrected.value_or(0) > 0) {
    report.add(Status::fail,
               say("{} uncorrectable memory error(s) since the driver was loaded",
                   "驱动加载以来有 {} 个不可纠正的显存错误", *seen.volatile_uncorrected));
  }
  check_rows(seen, report);
  check_old_xids(context, gpu, report);
  if (report.empty()) report.add(Status::pass, say("no recorded defects", "没有缺陷记录"));
}

}  // namespace lockstep::probe
