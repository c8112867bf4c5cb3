#include "hardware-probe/sim/sim_card.h"

#include <algorithm>
#include <cmath>

#include "engine/base/math.h"
#include "hardware-probe/kernels/workload.h"
#include "hardware-probe/observe/clock_reasons.h"

namespace lockstep::probe::sim {
namespace {

constexpr double kAmbient_c = 25;
constexpr int64_t kReasonIdle = 0x1;
constexpr double kHealthyReadMargin = 0.02;  // above the bar, where no measurement is published

}  // namespace

SimCard::SimCard(Chip c) : chip(std::move(c)), temperature_c_(chip.cooling.idle_c) {}

double SimCard::noise() {
  return 1.0 +
         0.002 *
             (static_cast<double>(mix64(++draws_ * 0x9e3779b97f4a7c15ull) >> 40) / 8388608.0 - 1.0);
}

int SimCard::heat_limit_c() const {
  return chip.card.max_operating_c;
}

double SimCard::full_clock_mhz() const {
  const double limit = chip.config.power_limit_w.value_or(chip.card.power_w) / chip.card.power_w;
  const double clock = chip.card.sustained_sm_mhz * std::sqrt(std::min(1.0, limit));
  return chip.power_brake ? clock * 0.5 : clock;
}

bool SimCard::too_hot() const {
  return loaded() && temperature_c_ >= heat_limit_c() - 0.5;
}

// Power goes with the square of the clock, and heat with power: the clock that just holds the
// limit.
double SimCard::sm_mhz() const {
  if (!loaded()) return 135;
  if (!too_hot()) return full_clock_mhz();
  const double extra = neighbour_ ? chip.cooling.from_neighbour_c : 0;
  const double own = std::max(1.0, chip.cooling.target_c - kAmbient_c);
  const double share = std::max(0.1, (heat_limit_c() - kAmbient_c - extra) / own);
  return full_clock_mhz() * std::min(1.0, std::sqrt(share));
}

void SimCard::advance(double seconds, bool neighbour_loaded) {
  neighbour_ = neighbour_loaded;
  const double extra = neighbour_loaded ? chip.cooling.from_neighbour_c : 0;
  const double target = loaded() ? chip.cooling.target_c + extra : chip.cooling.idle_c;
  temperature_c_ +=
      (target - temperature_c_) * (1.0 - exp_f64(-seconds / chip.cooling.time_constant_s));
  // From here on the limiter holds the temperature by taking clock away.
  temperature_c_ = std::min(temperature_c_, static_cast<double>(heat_limit_c()));
  if (too_hot()) heat_s += seconds;
  if (chip.power_brake && loaded()) power_s += seconds;
}

Sample SimCard::sample() const {
  Sample out;
  out.sm_mhz = sm_mhz();
  out.memory_mhz = chip.card.memory_mhz;
  const double speed = sm_mhz() / chip.card.sustained_sm_mhz;
  out.power_w =
      loaded() ? chip.card.idle_w + (chip.card.power_w * 0.97 - chip.card.idle_w) * speed * speed
               : chip.card.idle_w;
  out.temperature_c = temperature_c_;
  if (chip.card.memory_max_c > 0) {
    out.memory_temperature_c = temperature_c_ + (loaded() ? chip.cooling.memory_offset_c : 4);
  }
  int64_t reasons = loaded() ? 0 : kReasonIdle;
  if (loaded() && !too_hot() && sm_mhz() < chip.card.max_sm_mhz) reasons |= kReasonPowerCap;
  if (too_hot()) reasons |= kReasonSwThermal;
  if (chip.power_brake && loaded()) reasons |= kReasonPowerBrake | kReasonHwSlowdown;
  out.reasons = reasons;
  return out;
}

double SimCard::read_gbps(double from_share, double to_share) const {
  const Card& card = chip.card;
  const double share = card.measured_read_gbps > 0 ? card.measured_read_gbps / card.theory_gbps()
                                                   : card.bars.read_pass + kHealthyReadMargin;
  double speed = theory_gbps() * share;
  const double overlap = std::max(
      0.0, std::min(to_share, chip.slow_chunk_to) - std::max(from_share, chip.slow_chunk_from));
  const double width = std::max(to_share - from_share, 1e-9);
  const double slow = overlap / width;
  return speed / (1.0 - slow + slow / chip.slow_chunk_speed);
}

double SimCard::copy_gbps() const {
  const Card& card = chip.card;
  const double share = card.measured_copy_gbps > 0 ? card.measured_copy_gbps / card.theory_gbps()
                                                   : card.bars.copy_pass + kHealthyReadMargin;
  return theory_gbps() * share;
}

std::vector<SmRun> SimCard::run_sms(uint64_t golden, double now_s) {
  const bool hot = temperature_c_ >= chip.cooling.idle_c + 3 && now_s - load_ended_s < 5;
  const bool burst = now_s - load_ended_s < 0.2 && temperature_c_ < heat_limit_c();
  std::vector<SmRun> out;
  for (int sm = 0; sm < chip.card.sm - chip.hidden_sms; ++sm) {
    const bool mine = sm == chip.bad_sm % chip.card.sm && chip.bad_sm >= 0;
    const bool wrong = mine && (chip.bad_sm_when == SmTrouble::always ||
                                (chip.bad_sm_when == SmTrouble::hot && hot) ||
                                (chip.bad_sm_when == SmTrouble::after_burst && burst));
    const double slower = sm == chip.slow_sm ? 1.12 : 1.0;
    out.push_back({sm, wrong ? golden ^ 0x10 : golden, 0.42 * slower * noise()});
  }
  return out;
}

}  // namespace lockstep::probe::sim
