#include "hardware-probe/checks/check_table.h"

#include <algorithm>

namespace lockstep::probe {
namespace {

bool always(const Context&, int) {
  return true;
}

bool may_have_nvlink(const Context& context, int gpu) {
  const Card* card = context.row(gpu);
  return card == nullptr || card->nvlinks > 0;
}

// The ladder needs a driver that grants peer access; C20 says so where it does not.
bool peers(const Context& context, int index) {
  return context.seen.pairs[static_cast<size_t>(index)].can_access.value_or(true);
}

// True when the observations that the check reads are there.
bool has_observations(const std::string& id, const Context& context, int index) {
  if (id == "C20" || id == "C21" || id == "C22") return true;
  if (id == "C23") return context.seen.collective.has_value();
  if (id == "C01" || id == "C03" || id == "C24" || id == "C02" || id == "C25") return true;
  const GpuObservations& gpu = context.gpu(index);
  if (id == "C04") return gpu.config.has_value();
  if (id == "C05") return gpu.history.has_value();
  if (id == "C06") return gpu.idle.has_value();
  if (id == "C07") return gpu.pcie_link.has_value();
  if (id == "C08") return gpu.transfers.has_value();
  if (id == "C09") return gpu.pcie_errors.has_value();
  if (id == "C10") return gpu.memory_bandwidth.has_value();
  if (id == "C11") return gpu.memory_map.has_value();
  if (id == "C12") return gpu.memory_cold.has_value();
  if (id == "C13") return gpu.memory_hot.has_value();
  if (id == "C14") return gpu.bit_fade.has_value();
  if (id == "C15") return gpu.sm_proof.has_value();
  if (id == "C16") return gpu.rates.has_value();
  if (id == "C17") return gpu.soak_solo.has_value();
  if (id == "C18") return gpu.soak_all.has_value();
  return gpu.nvlink.has_value();
}

Text why_skipped(const Step* step) {
  if (step == nullptr) return say("was not run", "没有运行");
  if (step->outcome == "deadline") return say("hit its deadline: {}", "超时：{}", step->detail);
  if (step->outcome == "lost") return say("the card was lost: {}", "掉卡：{}", step->detail);
  if (step->outcome == "interrupted") return say("the run was interrupted", "运行被中断");
  if (step->outcome == "done") return say("ran but brought no result", "运行了但没有结果");
  return say("could not run: {}", "无法运行：{}", step->detail);
}

void run_one(const CheckEntry& entry, const Context& context, int index, const std::string& target,
             std::vector<Finding>& out) {
  if (!entry.applies(context, index)) return;
  Report report(entry.id, entry.name, target);
  const Step* step = context.step(entry.id, target);
  const bool usable =
      step != nullptr && step->outcome == "done" && has_observations(entry.id, context, index);
  // Losses and what a hung pair did are evidence even where the step itself did not end well.
  const bool evidence = std::string(entry.id) == "C25" ||
                        (std::string(entry.id) == "C21" &&
                         !context.seen.pairs[static_cast<size_t>(index)].rungs.empty());
  if (usable || evidence) entry.function(context, index, report);
  if (!usable)
    report.add(Status::skip, why_skipped(step),
               say("run again; if it stays, this alone is a reason to doubt",
                   "重测；若依旧如此，本身就值得怀疑"));
  for (Finding& finding : report.take()) out.push_back(std::move(finding));
}

}  // namespace

const std::vector<CheckEntry>& check_table() {
  static const std::vector<CheckEntry> table = {
      {"C01", "host.environment", Scope::host, Mode::quick, check_environment, always},
      {"C02", "gpu.identity", Scope::gpu, Mode::quick, check_identity, always},
      {"C03", "gpu.visible_to_driver", Scope::host, Mode::quick, check_visibility, always},
      {"C04", "gpu.config", Scope::gpu, Mode::quick, check_config, always},
      {"C05", "gpu.history", Scope::gpu, Mode::quick, check_history, always},
      {"C06", "gpu.idle", Scope::gpu, Mode::standard, check_idle, always},
      {"C07", "pcie.link", Scope::gpu, Mode::quick, check_pcie_link, always},
      {"C08", "pcie.bandwidth", Scope::gpu, Mode::quick, check_pcie_bandwidth, always},
      {"C09", "pcie.errors", Scope::gpu, Mode::quick, check_pcie_errors, always},
      {"C10", "mem.bandwidth", Scope::gpu, Mode::quick, check_memory_bandwidth, always},
      {"C11", "mem.uniformity", Scope::gpu, Mode::quick, check_memory_map, always},
      {"C12", "mem.patterns", Scope::gpu, Mode::quick, check_memory_cold, always},
      {"C13", "mem.patterns_hot", Scope::gpu, Mode::standard, check_memory_hot, always},
      {"C14", "mem.bitfade", Scope::gpu, Mode::deep, check_bit_fade, always},
      {"C15", "sm.hash", Scope::gpu, Mode::quick, check_sm_proof, always},
      {"C16", "compute.rate", Scope::gpu, Mode::quick, check_rates, always},
      {"C17", "thermal.solo", Scope::gpu, Mode::standard, check_soak_solo, always},
      {"C18", "thermal.all", Scope::gpu, Mode::quick, check_soak_all, always},
      {"C19", "nvlink.state_errors", Scope::gpu, Mode::quick, check_nvlink, may_have_nvlink},
      {"C20", "p2p.static", Scope::pair, Mode::quick, check_p2p_static, always},
      {"C21", "p2p.correct", Scope::pair, Mode::quick, check_p2p_correct, peers},
      {"C22", "p2p.perf", Scope::pair, Mode::quick, check_p2p_speed, peers},
      {"C23", "collective", Scope::group, Mode::quick, check_collective, always},
      {"C24", "stack.compat", Scope::host, Mode::quick, check_stack, always},
      {"C25", "xid.watch", Scope::gpu, Mode::quick, check_events, always},
  };
  return table;
}

std::vector<Finding> run_checks(const Context& context) {
  std::vector<Finding> out;
  const int n_gpus = static_cast<int>(context.seen.gpus.size());
  for (const CheckEntry& entry : check_table()) {
    if (context.seen.mode < entry.first_mode) continue;
    if (entry.scope == Scope::host) run_one(entry, context, 0, "host", out);
    if (entry.scope == Scope::group && n_gpus > 1) run_one(entry, context, 0, "all", out);
    for (int gpu = 0; entry.scope == Scope::gpu && gpu < n_gpus; ++gpu) {
      run_one(entry, context, gpu, gpu_target(gpu), out);
    }
    for (int a = 0; entry.scope == Scope::pair && a < n_gpus; ++a) {
      for (int b = 0; b < n_gpus; ++b) {
        if (a == b) continue;
        const auto pair =
            std::find_if(context.seen.pairs.begin(), context.seen.pairs.end(),
                         [&](const PairObservations& p) { return p.from == a && p.to == b; });
        if (pair != context.seen.pairs.end()) {
          run_one(entry, context, static_cast<int>(pair - context.seen.pairs.begin()),
                  pair_target(a, b), out);
          continue;
        }
        Report missing(entry.id, entry.name, pair_target(a, b));
        missing.add(Status::skip, why_skipped(nullptr));
        for (Finding& finding : missing.take()) out.push_back(std::move(finding));
      }
    }
  }
  return out;
}

}  // namespace lockstep::probe
