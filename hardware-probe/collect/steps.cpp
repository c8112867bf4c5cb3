#include "hardware-probe/collect/steps.h"

#include <algorithm>

#include "hardware-probe/collect/measure.h"
#include "hardware-probe/collect/peers.h"

namespace lockstep::probe {
namespace {

std::vector<int> all_gpus(int n) {
  std::vector<int> gpus;
  for (int gpu = 0; gpu < n; ++gpu) gpus.push_back(gpu);
  return gpus;
}

// Where the step's own GPU lies in its partial observations: always at its own index.
GpuObservations& own_gpu(Observations& seen, const StepSpec& spec) {
  seen.gpus.resize(static_cast<size_t>(std::max(spec.n_gpus, spec.gpu + 1)));
  return seen.gpus[static_cast<size_t>(spec.gpu)];
}

void perform_host(Backend& backend, const StepSpec& spec, Observations& seen) {
  if (spec.check == "C01") seen.host = backend.host();
  if (spec.check == "C24") seen.stack = backend.stack();
  if (spec.check == "C03") {
    seen.visible = backend.visible();
    seen.gpus.resize(static_cast<size_t>(backend.n_gpus()));
  }
}

void perform_pair(Backend& backend, const StepSpec& spec, Observations& seen,
                  const Publish& publish) {
  seen.pairs.push_back(backend.pair_static(spec.gpu, spec.peer));
  PairObservations& pair = seen.pairs.back();
  if (spec.check == "C20") return;
  const uint64_t seed = seed_of(spec.nonce, spec.check + spec.target());
  if (!pair.can_access.value_or(false)) return;
  if (spec.check == "C21") climb_ladder(backend, pair, seed, [&] { publish(seen); });
  if (spec.check == "C22") time_peers(backend, pair, budget_of(spec.mode));
}

void perform_soak_all(Backend& backend, const StepSpec& spec, Observations& seen) {
  const Budget budget = budget_of(spec.mode);
  const std::vector<int> gpus = all_gpus(spec.n_gpus);
  std::vector<Soak> soaks =
      soak(backend, gpus, budget.all_min_s, budget.all_max_s, budget.sample_hz);
  seen.gpus.resize(gpus.size());
  for (size_t i = 0; i < gpus.size(); ++i) seen.gpus[i].soak_all = std::move(soaks[i]);
}

void perform_driver_answers(Backend& backend, const StepSpec& spec, GpuObservations& out) {
  if (spec.check == "C02") out.identity = backend.identity(spec.gpu);
  if (spec.check == "C04") out.config = backend.config(spec.gpu);
  if (spec.check == "C05") out.history = backend.history(spec.gpu);
}

void perform_gpu(Backend& backend, const StepSpec& spec, GpuObservations& out) {
  const Budget budget = budget_of(spec.mode);
  const uint64_t seed = seed_of(spec.nonce, spec.check + spec.target());
  const int gpu = spec.gpu;
  if (spec.check == "C06") out.idle = watch_idle(backend, gpu, budget.idle_s);
  if (spec.check == "C07") out.pcie_link = measure_link_under_load(backend, gpu);
  if (spec.check == "C08") out.transfers = measure_transfers(backend, gpu, budget, seed);
  if (spec.check == "C09") {
    out.pcie_errors = PcieErrors{backend.pcie_replays(gpu), {}, backend.aer(gpu), {}, 0};
  }
  if (spec.check == "C10") out.memory_bandwidth = measure_bandwidth(backend, gpu, budget);
  if (spec.check == "C11") out.memory_map = measure_chunks(backend, gpu, budget);
  if (spec.check == "C12")
    out.memory_cold = test_memory(backend, gpu, budget.memory_rounds, 0, seed);
  if (spec.check == "C13")
    out.memory_hot = test_memory(backend, gpu, budget.hot_memory_rounds, budget.preheat_s, seed);
  if (spec.check == "C14") out.bit_fade = test_fading(backend, gpu, budget.fade_idle_s, seed);
  if (spec.check == "C15") out.sm_proof = prove_sms(backend, gpu, budget, seed);
  if (spec.check == "C16") out.rates = measure_rates(backend, gpu);
  if (spec.check == "C17") {
    out.soak_solo =
        soak(backend, {gpu}, budget.solo_min_s, budget.solo_max_s, budget.sample_hz).front();
  }
  if (spec.check == "C19")
    out.nvlink = watch_nvlinks(backend, gpu, spec.n_gpus, spec.mode == Mode::quick ? 2 : 10);
}

template <typename T>
void take(const Maybe<T>& from, Maybe<T>& to) {
  if (from.has_value()) to = from;
}

void merge_gpu(const GpuObservations& from, GpuObservations& to) {
  if (!from.identity.bus_id.empty()) to.identity = from.identity;
  take(from.config, to.config);
  take(from.history, to.history);
  take(from.idle, to.idle);
  take(from.pcie_link, to.pcie_link);
  take(from.transfers, to.transfers);
  take(from.pcie_errors, to.pcie_errors);
  take(from.memory_bandwidth, to.memory_bandwidth);
  take(from.memory_map, to.memory_map);
  take(from.memory_cold, to.memory_cold);
  take(from.memory_hot, to.memory_hot);
  take(from.bit_fade, to.bit_fade);
  take(from.sm_proof, to.sm_proof);
  take(from.rates, to.rates);
  take(from.soak_solo, to.soak_solo);
  take(from.soak_all, to.soak_all);
  take(from.nvlink, to.nvlink);
}

template <typename T>
void take_filled(const T& from, T& to) {
  if (!from.empty()) to = from;
}

void merge_pair(const PairObservations& from, std::vector<PairObservations>& pairs) {
  const auto known = std::find_if(pairs.begin(), pairs.end(), [&](const PairObservations& pair) {
    return pair.from == from.from && pair.to == from.to;
  });
  if (known == pairs.end()) {
    pairs.push_back(from);
    return;
  }
  take(from.can_access, known->can_access);
  take_filled(from.rungs, known->rungs);
  take_filled(from.latency_us, known->latency_us);
  take_filled(from.copy_gbps, known->copy_gbps);
  take_filled(from.store_gbps, known->store_gbps);
  take_filled(from.bidirectional_gbps, known->bidirectional_gbps);
  take_filled(from.bounce_gbps, known->bounce_gbps);
  take(from.copy_4k_us, known->copy_4k_us);
}

class InProcess final : public StepExecutor {
 public:
  explicit InProcess(Backend& backend) : backend_(backend) {}

  StepOutcome execute(const StepSpec& spec) override {
    StepOutcome out;
    const double start = backend_.now_s();
    try {
      out.seen =
          perform_step(backend_, spec, [&](const Observations& partial) { out.seen = partial; });
      out.outcome = "done";
    } catch (const DeviceLost& error) {
      out.outcome = "lost";
      out.detail = error.what();
    } catch (const DeadlinePassed& error) {
      out.outcome = "deadline";
      out.detail = error.what();
    } catch (const Error& error) {
      out.outcome = "failed";
      out.detail = error.what();
    }
    out.seconds = backend_.now_s() - start;
    for (const Event& event : backend_.events()) out.seen.events.push_back(event);
    return out;
  }

 private:
  Backend& backend_;
};

}  // namespace

std::string StepSpec::target() const {
  if (peer >= 0) return pair_target(gpu, peer);
  if (gpu >= 0) return gpu_target(gpu);
  return check == "C18" || check == "C23" ? "all" : "host";
}

Observations perform_step(Backend& backend, const StepSpec& spec, const Publish& publish) {
  Observations seen;
  seen.gpus.resize(static_cast<size_t>(std::max(spec.n_gpus, 0)));
  if (spec.check == "C18") {
    perform_soak_all(backend, spec, seen);
  } else if (spec.check == "C23") {
    seen.collective = try_collectives(backend, seed_of(spec.nonce, "C23"));
  } else if (spec.peer >= 0) {
    perform_pair(backend, spec, seen, publish);
  } else if (spec.gpu >= 0) {
    GpuObservations& own = own_gpu(seen, spec);
    if (spec.check == "C25") {
      seen.host.kernel_log_end = backend.host().kernel_log;
      backend.sample(spec.gpu);  // throws when the card is gone
    }
    perform_driver_answers(backend, spec, own);
    perform_gpu(backend, spec, own);
  } else {
    perform_host(backend, spec, seen);
  }
  return seen;
}

void merge(const Observations& part, const StepSpec& spec, Observations& whole) {
  if (spec.check == "C01") whole.host = part.host;
  if (spec.check == "C24") whole.stack = part.stack;
  take(part.host.kernel_log_end, whole.host.kernel_log_end);
  if (spec.check == "C03") {
    whole.visible = part.visible;
    whole.gpus.resize(std::max(whole.gpus.size(), part.gpus.size()));
  }
  for (size_t i = 0; i < std::min(part.gpus.size(), whole.gpus.size()); ++i)
    merge_gpu(part.gpus[i], whole.gpus[i]);
  for (const PairObservations& pair : part.pairs) merge_pair(pair, whole.pairs);
  if (part.collective.has_value()) whole.collective = part.collective;
  for (const Event& event : part.events) whole.events.push_back(event);
}

std::unique_ptr<StepExecutor> in_process_executor(Backend& backend) {
  return std::make_unique<InProcess>(backend);
}

}  // namespace lockstep::probe
