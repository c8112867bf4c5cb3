// C15 sm.hash, C16 compute.rate.
#include <algorithm>
#include <cmath>
#include <set>

#include "hardware-probe/checks/context.h"

namespace lockstep::probe {
namespace {

struct Phase {
  const char* en;
  const char* zh;
  const std::vector<SmReading>* readings;
};

void judge_hashes(const Phase& phase, uint64_t golden, Report& report) {
  std::string bad;
  for (const SmReading& reading : *phase.readings) {
    if (reading.wrong_runs == 0 && reading.hash == golden) continue;
    bad += fmt::format("{}{} ({}/{})", bad.empty() ? "" : ", ", reading.sm,
                       std::max(reading.wrong_runs, 1), reading.runs);
  }
  if (bad.empty()) return;
  report.add(Status::fail,
             Text{fmt::format("SM {} computes wrong results ({})", bad, phase.en),
                  fmt::format("SM {} 计算出错（{}）", bad, phase.zh)},
             say("the chip is defective: do not buy", "芯片有坏单元：不要买"));
}

void judge_slow_sms(const std::vector<SmReading>& readings, Report& report) {
  std::vector<double> times;
  for (const SmReading& reading : readings) times.push_back(reading.ms);
  const double middle = median(times);
  for (const SmReading& reading : readings) {
    if (!(middle > 0) || reading.ms <= middle * kSlowSm.value) continue;
    report.add(Status::warn, kSlowSm, reading.ms / middle,
               say("SM {} is {:.0f} % slower than the others", "SM {} 比其他慢 {:.0f} %",
                   reading.sm, 100 * (reading.ms / middle - 1)));
  }
}

void judge_rate(const char* what, const char* unit, const Maybe<double>& seen,
                const Maybe<double>& mhz, double per_mhz, Report& report) {
  if (!seen.has_value() || per_mhz <= 0) return;
  if (!mhz.has_value()) {
    report.add(Status::inconclusive, say("{}: the clock during the measurement is unknown",
                                         "{}：测量时的频率未知", what));
    return;
  }
  const double expected = per_mhz * *mhz;
  const double share = *seen / expected;
  const Status status = share < kRateFail.value   ? Status::fail
                        : share < kRatePass.value ? Status::warn
                                                  : Status::pass;
  report.add(status, status == Status::fail ? kRateFail : kRatePass, share,
             say("{} {:.2f} {}, expected {:.2f} at this clock", "{} {:.2f} {}，此频率下应为 {:.2f}",
                 what, *seen, unit, expected),
             status == Status::pass ? Text{}
                                    : say("units are cut or slowed: compare with the card's claim",
                                          "计算单元被阉割或降速：对照卡的宣称"));
}

}  // namespace

void check_sm_proof(const Context& context, int gpu, Report& report) {
  const SmProof& proof = *context.gpu(gpu).sm_proof;
  const Phase phases[] = {{"cold", "冷态", &proof.cold},
                          {"hot", "热态", &proof.hot},
                          {"in bursts", "脉冲", &proof.pulse}};
  std::set<int> seen;
  for (const Phase& phase : phases) {
    judge_hashes(phase, proof.golden, report);
    for (const SmReading& reading : *phase.readings) seen.insert(reading.sm);
  }
  judge_slow_sms(proof.cold, report);
  const int expected = context.gpu(gpu).identity.sm_count.value_or(0);
  if (expected <= 0 || static_cast<int>(seen.size()) != expected) {
    report.add(Status::inconclusive, say("{} of {} SMs were reached", "{1} 个 SM 中只测到 {0} 个",
                                         seen.size(), expected));
  } else if (report.empty()) {
    report
        .add(Status::pass,
             say("all {} SMs give the host's value", "{} 个 SM 结果都与主机一致", expected))
        .value = expected;
  }
}

void check_rates(const Context& context, int gpu, Report& report) {
  const ComputeRates& seen = *context.gpu(gpu).rates;
  const Card* card = context.row(gpu);
  const auto& identity = context.gpu(gpu).identity;
  if (card == nullptr) {
    report.add(Status::info,
               say("FP32 {:.1f} TFLOP/s; the database has no expectation for this card",
                   "FP32 {:.1f} TFLOP/s；数据库里没有这张卡的预期", seen.fp32_tflops.value_or(0)));
    return;
  }
  if (!identity.sm_count.has_value()) {
    report.add(Status::inconclusive, say("the number of SMs is unknown", "SM 数未知"));
    return;
  }
  const double sms = 2e-6 * *identity.sm_count;
  judge_rate("FP32", "TFLOP/s", seen.fp32_tflops, seen.fp32_mhz, sms * card->fp32_fma_per_sm,
             report);
  judge_rate("FP64", "TFLOP/s", seen.fp64_tflops, seen.fp64_mhz, sms * card->fp64_fma_per_sm,
             report);
  judge_rate("FP16 matrix", "TFLOP/s", seen.hmma_tflops, seen.hmma_mhz,
             sms * card->hmma_fma_per_sm * card->hmma_reach, report);
  judge_rate("INT8 dp4a", "TOP/s", seen.dp4a_tops, seen.dp4a_mhz, 4 * sms * card->dp4a_per_sm,
             report);
  if (report.empty()) report.add(Status::skip, say("no rate was measured", "没有测到算力"));
}

}  // namespace lockstep::probe
