// The order of a run. Cold measurements come before hot ones; peers before the soaks, so that a
// card that dies under heat has already shown its links.
#include <algorithm>

#include "hardware-probe/collect/budget.h"
#include "hardware-probe/collect/steps.h"

namespace lockstep::probe {
namespace {

struct Planned {
  const char* check;
  enum { per_gpu, per_pair, once } spread;
  Mode first_mode;
  double deadline_s[3];  // quick, standard, deep
};

constexpr Planned kPlan[] = {
    {"C02", Planned::per_gpu, Mode::quick, {30, 30, 30}},
    {"C04", Planned::per_gpu, Mode::quick, {30, 30, 30}},
    {"C05", Planned::per_gpu, Mode::quick, {30, 30, 30}},
    {"C09", Planned::per_gpu, Mode::quick, {30, 30, 30}},
    {"C06", Planned::per_gpu, Mode::standard, {0, 60, 120}},
    {"C07", Planned::per_gpu, Mode::quick, {60, 60, 60}},
    {"C08", Planned::per_gpu, Mode::quick, {120, 120, 240}},
    {"C10", Planned::per_gpu, Mode::quick, {60, 60, 120}},
    {"C11", Planned::per_gpu, Mode::quick, {60, 60, 120}},
    {"C12", Planned::per_gpu, Mode::quick, {60, 180, 1200}},
    {"C15", Planned::per_gpu, Mode::quick, {60, 120, 300}},
    {"C16", Planned::per_gpu, Mode::quick, {60, 60, 60}},
    {"C20", Planned::per_pair, Mode::quick, {30, 30, 30}},
    {"C21", Planned::per_pair, Mode::quick, {60, 60, 120}},
    {"C22", Planned::per_pair, Mode::quick, {60, 60, 120}},
    {"C19", Planned::per_gpu, Mode::quick, {60, 60, 60}},
    {"C23", Planned::once, Mode::quick, {90, 120, 180}},
    {"C17", Planned::per_gpu, Mode::standard, {0, 180, 720}},
    {"C18", Planned::once, Mode::quick, {90, 240, 1080}},
    {"C13", Planned::per_gpu, Mode::standard, {0, 180, 1200}},
    {"C14", Planned::per_gpu, Mode::deep, {0, 0, 600}},
    {"C25", Planned::per_gpu, Mode::quick, {30, 30, 30}},
};

class Run {
 public:
  Run(StepExecutor& executor, const CollectOptions& options)
      : executor_(executor), options_(options) {
    seen_.mode = options.mode;
    seen_.nonce = options.nonce;
    seen_.backend = options.backend_name;
  }

  Observations go() {
    for (const char* check : {"C01", "C03", "C24"}) perform(spec_of(check, -1, -1, 60));
    const std::vector<StepSpec> plan = plan_of(static_cast<int>(seen_.gpus.size()));
    for (const StepSpec& spec : plan) {
      options_.progress(spec, done_++, plan.size());
      perform(spec);
    }
    close_counters();
    options_.save(seen_);
    return std::move(seen_);
  }

 private:
  StepSpec spec_of(const char* check, int gpu, int peer, double deadline_s) const {
    StepSpec spec;
    spec.check = check;
    spec.gpu = gpu;
    spec.peer = peer;
    spec.n_gpus = static_cast<int>(seen_.gpus.size());
    spec.mode = options_.mode;
    spec.nonce = options_.nonce;
    spec.deadline_s = deadline_s;
    return spec;
  }

  std::vector<StepSpec> plan_of(int n) const {
    std::vector<StepSpec> plan;
    for (const Planned& planned : kPlan) {
      if (options_.mode < planned.first_mode) continue;
      const double deadline_s = planned.deadline_s[static_cast<int>(options_.mode)];
      const bool group = std::string(planned.check) == "C23";
      if (planned.spread == Planned::once && n > (group ? 1 : 0)) {
        plan.push_back(spec_of(planned.check, -1, -1, deadline_s));
      }
      for (int a = 0; planned.spread != Planned::once && a < n; ++a) {
        if (planned.spread == Planned::per_gpu)
          plan.push_back(spec_of(planned.check, a, -1, deadline_s));
        for (int b = 0; planned.spread == Planned::per_pair && b < n; ++b) {
          if (a != b) plan.push_back(spec_of(planned.check, a, b, deadline_s));
        }
      }
    }
    return plan;
  }

  bool needs_lost(const StepSpec& spec) const {
    const auto lost = [&](int gpu) {
      return gpu >= 0 && std::find(lost_.begin(), lost_.end(), gpu) != lost_.end();
    };
    return lost(spec.gpu) || lost(spec.peer) || (spec.target() == "all" && !lost_.empty());
  }

  void perform(const StepSpec& spec) {
    StepOutcome result;
    if (options_.interrupted()) {
      result.outcome = "interrupted";
    } else if (needs_lost(spec)) {
      result.outcome = "lost";
      result.detail = "a card was lost earlier in this run";
    } else {
      result = executor_.execute(spec);
      merge(result.seen, spec, seen_);
    }
    remember_losses(result);
    note_steps(spec, result);
    options_.save(seen_);
  }

  void remember_losses(const StepOutcome& result) {
    for (const Event& event : result.seen.events) {
      if (event.kind == "lost") lost_.push_back(event.gpu);
    }
  }

  // One step of all cards counts for the check on each card.
  void note_steps(const StepSpec& spec, const StepOutcome& result) {
    const auto note = [&](const std::string& target) {
      seen_.steps.push_back({spec.check, target, result.outcome, result.detail, result.seconds});
    };
    if (spec.check != "C18") {
      note(spec.target());
      return;
    }
    for (int gpu = 0; gpu < static_cast<int>(seen_.gpus.size()); ++gpu) note(gpu_target(gpu));
  }

  // C09 counts from the first to the last look of the run.
  void close_counters() {
    for (int gpu = 0; gpu < static_cast<int>(seen_.gpus.size()); ++gpu) {
      GpuObservations& own = seen_.gpus[static_cast<size_t>(gpu)];
      if (!own.pcie_errors.has_value()) continue;
      const StepSpec spec = spec_of("C09", gpu, -1, 30);
      if (options_.interrupted() || needs_lost(spec)) continue;
      const StepOutcome last = executor_.execute(spec);
      const size_t index = static_cast<size_t>(gpu);
      if (last.outcome != "done" || last.seen.gpus.size() <= index ||
          !last.seen.gpus[index].pcie_errors)
        continue;
      own.pcie_errors->replays_after = last.seen.gpus[index].pcie_errors->replays_before;
      own.pcie_errors->aer_after = last.seen.gpus[index].pcie_errors->aer_before;
      own.pcie_errors->minutes = seconds_so_far() / 60;
    }
  }

  double seconds_so_far() const {
    double sum = 0;
    for (const Step& step : seen_.steps) sum += step.seconds;
    return sum;
  }

  StepExecutor& executor_;
  const CollectOptions& options_;
  Observations seen_;
  std::vector<int> lost_;
  size_t done_ = 0;
};

}  // namespace

Observations collect(StepExecutor& executor, const CollectOptions& options) {
  return Run(executor, options).go();
}

}  // namespace lockstep::probe
