// C06 gpu.idle, C17 thermal.solo, C18 thermal.all.
#include <algorithm>
#include <cmath>

#include "hardware-probe/checks/context.h"
#include "hardware-probe/observe/clock_reasons.h"

namespace lockstep::probe {
namespace {

// NVML may show a slowdown bit for a moment at a clock change, so a lone sample does not count.
int64_t consecutive_samples(const std::vector<Sample>& series, int64_t mask) {
  int64_t counted = 0, run = 0;
  for (const Sample& sample : series) {
    run = (sample.reasons.value_or(0) & mask) != 0 ? run + 1 : 0;
    if (run == 2) counted += 2;
    if (run > 2) ++counted;
  }
  return counted;
}

double share_of(const Soak& soak, int64_t mask) {
  if (soak.series.empty()) return 0;
  return static_cast<double>(consecutive_samples(soak.series, mask)) /
         static_cast<double>(soak.series.size());
}

// The last third of a soak: the plateau.
template <typename Get>
double plateau(const Soak& soak, Get get) {
  std::vector<double> values;
  for (size_t i = soak.series.size() * 2 / 3; i < soak.series.size(); ++i) {
    if (const Maybe<double> value = get(soak.series[i]); value.has_value())
      values.push_back(*value);
  }
  return median(values);
}

double clock_of(const Soak& soak) {
  return plateau(soak, [](const Sample& s) { return s.sm_mhz; });
}
double heat_of(const Soak& soak) {
  return plateau(soak, [](const Sample& s) { return s.temperature_c; });
}
double memory_heat_of(const Soak& soak) {
  return plateau(soak, [](const Sample& s) { return s.memory_temperature_c; });
}

int limit_of(const Context& context, int gpu) {
  const GpuIdentity& seen = context.gpu(gpu).identity;
  if (seen.max_operating_c.value_or(0) > 0) return *seen.max_operating_c;
  const Card* card = context.row(gpu);
  if (card != nullptr && card->max_operating_c > 0) return card->max_operating_c;
  return seen.slowdown_c.has_value() ? *seen.slowdown_c - static_cast<int>(kTemperatureMargin.value)
                                     : 0;
}

int memory_limit_of(const Context& context, int gpu) {
  const GpuIdentity& seen = context.gpu(gpu).identity;
  if (seen.memory_max_c.value_or(0) > 0) return *seen.memory_max_c;
  return context.row(gpu) == nullptr ? 0 : context.row(gpu)->memory_max_c;
}

void judge_temperature(const char* what_en, const char* what_zh, double celsius, int limit,
                       Status worst, Report& report) {
  if (std::isnan(celsius) || limit <= 0 || celsius <= limit - kTemperatureMargin.value) return;
  const Status status = celsius > limit ? worst : Status::warn;
  Finding& finding = report.add(
      status,
      Text{fmt::format("{} settles at {:.0f} C, limit {} C", what_en, celsius, limit),
           fmt::format("{}稳定在 {:.0f} ℃，上限 {} ℃", what_zh, celsius, limit)},
      worst == Status::fail
          ? say("better cooling; on an old card new paste and pads", "加强散热；老卡换硅脂和导热垫")
          : say("give this card its own cool air", "给这张卡单独送冷风"));
  finding.value = celsius;
  finding.unit = "C";
  finding.threshold = limit;
  finding.source = kTemperatureMargin.source;
}

// `worst` is what heat may lead to: a failure when the card alone is at fault, else a note.
void judge_soak(const Context& context, int gpu, const Soak& soak, Status worst, Report& report) {
  if (soak.series.size() < 4) {
    report.add(Status::skip, say("too few readings under load", "负载下的读数太少"));
    return;
  }
  if (const double brake = share_of(soak, kReasonPowerBrake); brake > 0) {
    report.add(Status::fail,
               say("the power brake signal was active in {:.0f} % of the readings",
                   "供电刹车信号在 {:.0f} % 的读数中有效", 100 * brake),
               say("the supply or its cable cannot feed this card", "电源或供电线带不动这张卡"));
  }
  const double throttled = share_of(soak, kReasonThermal);
  const Text remedy =
      worst == Status::fail
          ? say("the cooler or its paste has failed, or air is missing",
                "散热器或硅脂失效，或风量不足")
          : say("the machine's air flow, not the card: give this card its own cool air",
                "是机箱风道问题，不是卡：给这张卡单独送冷风");
  if (throttled > 0) {
    report.add(throttled > kThrottleShareFail.value ? worst : Status::warn, kThrottleShareFail,
               throttled,
               say("slowed by heat in {:.0f} % of the readings, clock {:.0f} MHz",
                   "{:.0f} % 的读数处于过热降频，频率 {:.0f} MHz", 100 * throttled, clock_of(soak)),
               remedy);
  }
  judge_temperature("GPU", "核心", heat_of(soak), limit_of(context, gpu), worst, report);
  judge_temperature("memory", "显存", memory_heat_of(soak), memory_limit_of(context, gpu), worst,
                    report);
  if (share_of(soak, kReasonPowerCap) > 0.5) {
    report.add(Status::info,
               say("held at {:.0f} MHz by its power limit, which is normal under full load",
                   "满载时受功耗上限限制在 {:.0f} MHz，属正常", clock_of(soak)));
  }
}

bool has_trouble(const Context& context, int gpu) {
  Report probe("", "", "");
  judge_soak(context, gpu, *context.gpu(gpu).soak_solo, Status::fail, probe);
  for (const Finding& finding : probe.take()) {
    if (finding.status != Status::info) return true;
  }
  return false;
}

void judge_company(const Context& context, int gpu, Report& report) {
  const GpuObservations& seen = context.gpu(gpu);
  const double alone = clock_of(*seen.soak_solo);
  const double together = clock_of(*seen.soak_all);
  if (std::isnan(alone) || std::isnan(together) || alone <= 0) return;
  const double ratio = together / alone;
  if (ratio >= kTogetherRatioPass.value) return;
  // A card that is cool alone is a sound card in a bad place: a note, however slow it gets.
  const bool sound = !has_trouble(context, gpu);
  const Status status = !sound && ratio < kTogetherRatioFail.value ? Status::fail : Status::warn;
  report.add(status, kTogetherRatioPass, ratio,
             say("{:.0f} MHz together with the other cards, {:.0f} alone: work split over the "
                 "cards runs {:.0f} % slower",
                 "与其他卡一起跑 {:.0f} MHz，单独跑 {:.0f}：合跑会慢 {:.0f} %", together, alone,
                 100 * (1 - ratio)),
             say("cool the cards separately", "把两张卡的风道分开"));
}

}  // namespace

void check_idle(const Context& context, int gpu, Report& report) {
  const std::vector<Sample>& series = *context.gpu(gpu).idle;
  if (series.empty()) {
    report.add(Status::skip, say("no reading at rest", "没有空闲读数"));
    return;
  }
  const Sample& last = series.back();
  if (last.temperature_c.value_or(0) > kIdleTemperature.value) {
    report.add(Status::warn, kIdleTemperature, *last.temperature_c,
               say("{:.0f} C at rest", "空闲时 {:.0f} ℃", *last.temperature_c),
               say("the thermal interface may have failed; look at the load test",
                   "导热可能失效；看负载测试"));
  }
  const Card* card = context.row(gpu);
  if (card != nullptr && last.power_w.has_value() &&
      *last.power_w > card->idle_w * kIdlePowerRatio.value) {
    report.add(Status::info, kIdlePowerRatio, *last.power_w / card->idle_w,
               say("{:.0f} W at rest, usual {:.0f} W", "空闲 {:.0f} W，一般 {:.0f} W",
                   *last.power_w, card->idle_w));
  }
  if (report.empty()) {
    report.add(Status::pass,
               say("{:.0f} C at rest", "空闲 {:.0f} ℃", last.temperature_c.value_or(0)));
  }
}

void check_soak_solo(const Context& context, int gpu, Report& report) {
  const Soak& soak = *context.gpu(gpu).soak_solo;
  judge_soak(context, gpu, soak, Status::fail, report);
  if (report.has(Status::skip)) return;
  report.conclude(say("alone: {:.0f} MHz at {:.0f} C", "单独：{:.0f} MHz，{:.0f} ℃", clock_of(soak),
                      heat_of(soak)));
}

void check_soak_all(const Context& context, int gpu, Report& report) {
  const GpuObservations& seen = context.gpu(gpu);
  const bool sound_alone = seen.soak_solo.has_value() && !has_trouble(context, gpu);
  judge_soak(context, gpu, *seen.soak_all, sound_alone ? Status::warn : Status::fail, report);
  if (report.has(Status::skip)) return;
  if (seen.soak_solo.has_value()) judge_company(context, gpu, report);
  report.conclude(say("all cards busy: {:.0f} MHz at {:.0f} C", "全部满载：{:.0f} MHz，{:.0f} ℃",
                      clock_of(*seen.soak_all), heat_of(*seen.soak_all)));
}

}  // namespace lockstep::probe
