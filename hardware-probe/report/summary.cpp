#include "hardware-probe/report/summary.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hardware-probe/checks/context.h"

namespace lockstep::probe {
namespace {

double or_zero(double value) {
  return std::isnan(value) ? 0 : value;
}

template <typename Get>
double plateau(const Maybe<Soak>& soak, Get get) {
  if (!soak.has_value()) return 0;
  std::vector<double> values;
  for (size_t i = soak->series.size() * 2 / 3; i < soak->series.size(); ++i) {
    if (const auto value = get(soak->series[i]); value.has_value()) values.push_back(*value);
  }
  return or_zero(median(values));
}

CardSummary summarize_card(const GpuObservations& gpu, const CardDatabase& cards) {
  const auto clock = [](const Sample& s) { return s.sm_mhz; };
  const auto heat = [](const Sample& s) { return s.temperature_c; };
  CardSummary out;
  const Card* row = cards.match(gpu.identity.pci_id, gpu.identity.fb_mib);
  out.uuid = gpu.identity.uuid.value_or("");
  out.row = row == nullptr ? gpu.identity.name.value_or("?") : row->name;
  out.memory_mhz = gpu.identity.max_memory_mhz.value_or(0);
  out.theory_gbps = theoretical_gbps(out.memory_mhz, gpu.identity.bus_bits.value_or(0));
  if (gpu.memory_bandwidth.has_value()) {
    out.read_gbps = or_zero(median(gpu.memory_bandwidth->read_gbps));
    out.copy_gbps = or_zero(median(gpu.memory_bandwidth->copy_gbps));
  }
  out.sm = gpu.identity.sm_count.value_or(0);
  out.sm_mhz = gpu.identity.max_sm_mhz.value_or(0);
  if (gpu.rates.has_value()) {
    out.fp32_tflops = gpu.rates->fp32_tflops.value_or(0);
    out.hmma_tflops = gpu.rates->hmma_tflops.value_or(0);
  }
  out.solo_mhz = plateau(gpu.soak_solo, clock);
  out.solo_c = plateau(gpu.soak_solo, heat);
  out.together_mhz = plateau(gpu.soak_all, clock);
  out.together_c = plateau(gpu.soak_all, heat);
  return out;
}

double compute_of(const CardSummary& card) {
  return card.sm * card.sm_mhz;
}

// The card with the least measured value. One without it is no slow card: that it was not measured
// is in the findings.
const CardSummary& least(const MachineSummary& machine, double (*value)(const CardSummary&)) {
  const auto rank = [&](const CardSummary& card) {
    const double own = value(card);
    return own > 0 ? own : std::numeric_limits<double>::infinity();
  };
  return *std::min_element(
      machine.cards.begin(), machine.cards.end(),
      [&](const CardSummary& a, const CardSummary& b) { return rank(a) < rank(b); });
}

const CardSummary& slowest_memory(const MachineSummary& machine) {
  return least(machine, [](const CardSummary& card) {
    return card.read_gbps > 0 ? card.read_gbps : card.theory_gbps;
  });
}

const CardSummary& slowest_compute(const MachineSummary& machine) {
  return least(machine, compute_of);
}

double worst_ratio(const MachineSummary& machine) {
  double worst = 1;
  for (const CardSummary& card : machine.cards) {
    if (card.solo_mhz > 0 && card.together_mhz > 0)
      worst = std::min(worst, card.together_mhz / card.solo_mhz);
  }
  return worst;
}

bool is_compared(const CardSummary& card) {
  return card.solo_mhz > 0 && card.together_mhz > 0;
}

Text describe_cooling(const MachineSummary& machine) {
  const bool compared = std::any_of(machine.cards.begin(), machine.cards.end(), is_compared);
  if (compared && machine.cards.size() > 1) {
    return say("all cards together run {:.0f} % slower than alone", "一起跑比单独跑慢 {:.0f} %",
               100 * (1 - worst_ratio(machine)));
  }
  if (compared) {
    return say("{:.0f} MHz and {:.0f} C under load", "满载 {:.0f} MHz，{:.0f} ℃",
               machine.cards.front().solo_mhz, machine.cards.front().solo_c);
  }
  if (machine.mode != Mode::quick) return {"what heat costs was not measured", "散热影响没有测到"};
  return {"what heat costs, --standard measures", "散热影响要用 --standard 测"};
}

Text change(double now, double before) {
  if (!(now > 0) || !(before > 0)) return {"not measured in both", "没有两次都测到"};
  const std::string percent = fmt::format("{:+.1f} %", 100 * (now / before - 1));
  return {percent, percent};
}

// Of the clock under company, in points.
Text change_of_company(const MachineSummary& now, const MachineSummary& before) {
  const auto compared = [](const MachineSummary& machine) {
    return std::any_of(machine.cards.begin(), machine.cards.end(), is_compared);
  };
  if (!compared(now) || !compared(before)) return change(0, 0);
  const std::string percent =
      fmt::format("{:+.1f} %", 100 * (worst_ratio(now) - worst_ratio(before)));
  return {percent, percent};
}

Text describe_link(const MachineSummary& machine) {
  if (machine.cards.size() < 2) return {"one card, no link", "单卡，没有互联"};
  if (machine.peers_denied) return {"no peer access; through host memory", "没有直连；走主机内存"};
  if (machine.peer_gbps <= 0) return {"not measured", "没有测到"};
  const char* kind = machine.nvlinks > 0 ? "NVLink" : "PCIe";
  if (machine.peer_latency_us <= 0) {
    return say("{} at {:.0f} GB/s", "{}，{:.0f} GB/s", kind, machine.peer_gbps);
  }
  return say("{} at {:.0f} GB/s, {:.1f} us", "{}，{:.0f} GB/s，{:.1f} 微秒", kind,
             machine.peer_gbps, machine.peer_latency_us);
}

struct Doubt {
  Status status;
  Text words;
};
// The gravest first.
const Doubt kDoubts[] = {{Status::fail, {"failed", "不通过"}},
                         {Status::skip, {"could not run", "没测成"}},
                         {Status::inconclusive, {"is unclear", "不确定"}},
                         {Status::warn, {"has a note", "有备注"}}};

bool found(const std::vector<Finding>& findings, const Finding& of, Status status) {
  return std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
    return finding.check == of.check && finding.target == of.target && finding.status == status;
  });
}

// Of which a check says this, and nothing graver.
std::string targets_of(const std::vector<Finding>& findings, const std::string& check,
                       Status status) {
  std::vector<std::string> targets;
  for (const Finding& finding : findings) {
    if (finding.check != check || finding.status != status) continue;
    const auto graver =
        std::find_if(std::begin(kDoubts), std::end(kDoubts), [&](const Doubt& doubt) {
          return doubt.status == status || found(findings, finding, doubt.status);
        });
    const bool gravest = graver->status == status;
    const bool listed = std::find(targets.begin(), targets.end(), finding.target) != targets.end();
    if (gravest && !listed) targets.push_back(finding.target);
  }
  return fmt::format("{}", fmt::join(targets, ", "));
}

// "C10 failed (gpu1); C11 has a note (gpu0)": what these checks found that is not fine.
Text doubts_of(const std::vector<Finding>& findings, const std::vector<std::string>& checks) {
  Text out;
  for (const Doubt& doubt : kDoubts) {
    for (const std::string& check : checks) {
      const std::string targets = targets_of(findings, check, doubt.status);
      if (targets.empty()) continue;
      out.en +=
          fmt::format("{}{} {} ({})", out.en.empty() ? "" : "; ", check, doubt.words.en, targets);
      out.zh +=
          fmt::format("{}{} {}（{}）", out.zh.empty() ? "" : "；", check, doubt.words.zh, targets);
    }
  }
  return out;
}

Text with_doubts(const Text& line, const Text& doubts) {
  if (doubts.en.empty()) return line;
  return {line.en + " But " + doubts.en + ".", line.zh + "但 " + doubts.zh + "。"};
}

Text join(const Text& a, const Text& b) {
  return {a.en + b.en, a.zh + b.zh};
}

Text sentence(const Text& text) {
  return join(text, {".", "。"});
}

Text describe_memory(const CardSummary& card) {
  const Text reads = card.read_gbps > 0 ? say("reads {:.0f} GB/s", "读 {:.0f} GB/s", card.read_gbps)
                                        : say("reads were not measured", "没有测到读速");
  return {
      fmt::format("1. Memory clock: {:.0f} MHz, {}. Speed of generated text follows this "
                  "number.",
                  card.memory_mhz, reads.en),
      fmt::format("1. 显存频率：{:.0f} MHz，{}。生成速度由它决定。", card.memory_mhz, reads.zh)};
}

Text describe_compute(const MachineSummary& machine) {
  const CardSummary& card = slowest_compute(machine);
  const Text matrix = card.hmma_tflops > 0 ? say("{:.1f} TFLOP/s FP16 matrix",
                                                 "FP16 矩阵 {:.1f} TFLOP/s", card.hmma_tflops)
                                           : say("FP16 matrix not measured", "没有测到 FP16 矩阵");
  const Text cooling = sentence(describe_cooling(machine));
  return {fmt::format("2. Compute and cooling: {:.0f} SM at {:.0f} MHz, {}; {}", card.sm,
                      card.sm_mhz, matrix.en, cooling.en),
          fmt::format("2. 算力和散热：{:.0f} 个 SM，{:.0f} MHz，{}；{}", card.sm, card.sm_mhz,
                      matrix.zh, cooling.zh)};
}

}  // namespace

MachineSummary summarize(const Observations& seen, const CardDatabase& cards,
                         const std::vector<Finding>& findings) {
  MachineSummary out;
  out.mode = seen.mode;
  for (const GpuObservations& gpu : seen.gpus) out.cards.push_back(summarize_card(gpu, cards));
  out.peers_denied = !seen.pairs.empty();
  for (const PairObservations& pair : seen.pairs) {
    const double gbps = or_zero(median(pair.copy_gbps));
    if (gbps > 0) out.peer_gbps = out.peer_gbps > 0 ? std::min(out.peer_gbps, gbps) : gbps;
    if (const auto flag = pair.latency_us.find("flag"); flag != pair.latency_us.end()) {
      out.peer_latency_us = std::max(out.peer_latency_us, flag->second);
    }
    if (pair.can_access.value_or(true)) out.peers_denied = false;
    out.nvlinks = std::max(out.nvlinks, pair.nvlinks);
  }
  out.memory_doubts = doubts_of(findings, {"C02", "C10", "C11"});
  out.compute_doubts = doubts_of(findings, {"C04", "C15", "C16", "C17", "C18"});
  out.link_doubts = doubts_of(findings, {"C19", "C20", "C21", "C22", "C23"});
  return out;
}

bool pair_is_trusted(const std::vector<Finding>& findings, int from, int to) {
  const std::string target = pair_target(from, to);
  bool proven = false;
  for (const Finding& finding : findings) {
    const bool of_pair = finding.target == target || finding.check == "C23";
    if (!of_pair) continue;
    if (finding.status == Status::pass) proven = proven || finding.check == "C21";
    if (finding.status != Status::pass && finding.status != Status::info &&
        finding.status != Status::warn)
      return false;
  }
  return proven;
}

std::vector<Text> rank_speed(const MachineSummary& machine) {
  if (machine.cards.empty()) return {};
  return {with_doubts(describe_memory(slowest_memory(machine)), machine.memory_doubts),
          with_doubts(describe_compute(machine), machine.compute_doubts),
          with_doubts(join({"3. Link between the cards: ", "3. 两卡互联："},
                           sentence(describe_link(machine))),
                      machine.link_doubts)};
}

std::vector<Text> rank_difference(const MachineSummary& now, const MachineSummary& before) {
  if (now.cards.empty() || before.cards.empty()) return {};
  const CardSummary& a = slowest_memory(now);
  const CardSummary& b = slowest_memory(before);
  const Text reads = change(a.read_gbps, b.read_gbps);
  const Text compute =
      change(compute_of(slowest_compute(now)), compute_of(slowest_compute(before)));
  const Text company = change_of_company(now, before);
  const Text link_now = with_doubts(sentence(describe_link(now)), now.link_doubts);
  const Text link_before = with_doubts(sentence(describe_link(before)), before.link_doubts);
  return {
      {fmt::format("1. Memory clock {:.0f} against {:.0f} MHz: reads {}, and with them generated "
                   "text",
                   a.memory_mhz, b.memory_mhz, reads.en),
       fmt::format("1. 显存频率 {:.0f} 对 {:.0f} MHz：读速 {}，生成速度随之", a.memory_mhz,
                   b.memory_mhz, reads.zh)},
      {fmt::format("2. Compute {} (reading of prompts), clock under company {}", compute.en,
                   company.en),
       fmt::format("2. 算力 {}（读 prompt），合跑频率 {}", compute.zh, company.zh)},
      {"3. Link: " + link_now.en + " Before: " + link_before.en,
       "3. 互联：" + link_now.zh + "之前：" + link_before.zh}};
}

}  // namespace lockstep::probe
