#include "hardware-probe/report/summary.h"

#include <algorithm>
#include <cmath>

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

const CardSummary& slowest(const MachineSummary& machine) {
  return *std::min_element(
      machine.cards.begin(), machine.cards.end(),
      [](const CardSummary& a, const CardSummary& b) { return a.read_gbps < b.read_gbps; });
}

double compute_of(const CardSummary& card) {
  return card.sm * card.sm_mhz;
}

double worst_ratio(const MachineSummary& machine) {
  double worst = 1;
  for (const CardSummary& card : machine.cards) {
    if (card.solo_mhz > 0 && card.together_mhz > 0)
      worst = std::min(worst, card.together_mhz / card.solo_mhz);
  }
  return worst;
}

Text describe_cooling(const MachineSummary& machine) {
  const bool compared = std::any_of(
      machine.cards.begin(), machine.cards.end(),
      [](const CardSummary& card) { return card.solo_mhz > 0 && card.together_mhz > 0; });
  if (!compared) return {"what heat costs, --standard measures", "散热影响要用 --standard 测"};
  return say("all cards together run {:.0f} % slower than alone", "一起跑比单独跑慢 {:.0f} %",
             100 * (1 - worst_ratio(machine)));
}

double percent(double now, double before) {
  return before > 0 ? 100 * (now / before - 1) : 0;
}

Text describe_link(const MachineSummary& machine) {
  if (machine.cards.size() < 2) return {"one card, no link", "单卡，没有互联"};
  if (machine.peer_gbps <= 0)
    return {"no peer access; through host memory", "没有直连；走主机内存"};
  if (!machine.peers_trusted)
    return {"peer access is broken; use host memory", "直连是坏的；走主机内存"};
  return say("{} at {:.0f} GB/s, {:.1f} us", "{}，{:.0f} GB/s，{:.1f} 微秒",
             machine.nvlinks > 0 ? "NVLink" : "PCIe", machine.peer_gbps, machine.peer_latency_us);
}

}  // namespace

MachineSummary summarize(const Observations& seen, const CardDatabase& cards) {
  MachineSummary out;
  for (const GpuObservations& gpu : seen.gpus) out.cards.push_back(summarize_card(gpu, cards));
  out.peers_trusted = !seen.pairs.empty();
  for (const PairObservations& pair : seen.pairs) {
    const double gbps = or_zero(median(pair.copy_gbps));
    if (gbps > 0) out.peer_gbps = out.peer_gbps > 0 ? std::min(out.peer_gbps, gbps) : gbps;
    if (const auto flag = pair.latency_us.find("flag"); flag != pair.latency_us.end()) {
      out.peer_latency_us = std::max(out.peer_latency_us, flag->second);
    }
    for (const auto& [name, rung] : pair.rungs) {
      if (rung.outcome != "ok" && rung.outcome != "unsupported") out.peers_trusted = false;
    }
    if (pair.copy_4k_us.value_or(0) > kCopyLatencyFail.value) out.peers_trusted = false;
    out.nvlinks = std::max(out.nvlinks, pair.nvlinks);
  }
  return out;
}

std::vector<Text> rank_speed(const MachineSummary& machine) {
  if (machine.cards.empty()) return {};
  const CardSummary& card = slowest(machine);
  std::vector<Text> out;
  out.push_back(
      say("1. Memory clock: {:.0f} MHz, reads {:.0f} GB/s. Speed of generated text follows this "
          "number.",
          "1. 显存频率：{:.0f} MHz，读 {:.0f} GB/s。生成速度由它决定。", card.memory_mhz,
          card.read_gbps));
  const Text cooling = describe_cooling(machine);
  out.push_back(say("2. Compute and cooling: {:.0f} SM at {:.0f} MHz, {:.1f} TFLOP/s FP16 matrix; ",
                    "2. 算力和散热：{:.0f} 个 SM，{:.0f} MHz，FP16 矩阵 {:.1f} TFLOP/s；", card.sm,
                    card.sm_mhz, card.hmma_tflops));
  out.back().en += cooling.en + ".";
  out.back().zh += cooling.zh + "。";
  const Text link = describe_link(machine);
  out.push_back({"3. Link between the cards: " + link.en + ".", "3. 两卡互联：" + link.zh + "。"});
  return out;
}

std::vector<Text> rank_difference(const MachineSummary& now, const MachineSummary& before) {
  if (now.cards.empty() || before.cards.empty()) return {};
  const CardSummary& a = slowest(now);
  const CardSummary& b = slowest(before);
  std::vector<Text> out;
  out.push_back(say(
      "1. Memory clock {:.0f} against {:.0f} MHz: reads {:+.1f} %, and with them generated text",
      "1. 显存频率 {:.0f} 对 {:.0f} MHz：读速 {:+.1f} %，生成速度随之", a.memory_mhz, b.memory_mhz,
      percent(a.read_gbps, b.read_gbps)));
  out.push_back(say("2. Compute {:+.1f} % (reading of prompts), clock under company {:+.1f} %",
                    "2. 算力 {:+.1f} %（读 prompt），合跑频率 {:+.1f} %",
                    percent(compute_of(a), compute_of(b)),
                    100 * (worst_ratio(now) - worst_ratio(before))));
  const Text link_now = describe_link(now), link_before = describe_link(before);
  out.push_back({"3. Link: " + link_now.en + "; before: " + link_before.en,
                 "3. 互联：" + link_now.zh + "；之前：" + link_before.zh});
  return out;
}

}  // namespace lockstep::probe
