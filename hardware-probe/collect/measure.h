// One measurement each, built from backend calls.
#pragma once

#include "hardware-probe/backend/backend.h"
#include "hardware-probe/collect/budget.h"

namespace lockstep::probe {

uint64_t seed_of(const std::string& nonce, const std::string& purpose);

TransferRates measure_transfers(Backend& backend, int gpu, const Budget& budget, uint64_t seed);
PcieLink measure_link_under_load(Backend& backend, int gpu);
MemoryBandwidth measure_bandwidth(Backend& backend, int gpu, const Budget& budget);
std::vector<ChunkRate> measure_chunks(Backend& backend, int gpu, const Budget& budget);
MemoryTest test_memory(Backend& backend, int gpu, int rounds, double preheat_s, uint64_t seed);
MemoryTest test_fading(Backend& backend, int gpu, double idle_s, uint64_t seed);
SmProof prove_sms(Backend& backend, int gpu, const Budget& budget, uint64_t seed);
ComputeRates measure_rates(Backend& backend, int gpu);
std::vector<Sample> watch_idle(Backend& backend, int gpu, double seconds);
// Loads all `gpus` at once; one Soak each.
std::vector<Soak> soak(Backend& backend, const std::vector<int>& gpus, double min_s, double max_s,
                       double hz);
NvlinkReport watch_nvlinks(Backend& backend, int gpu, int n_gpus, double load_s);

}  // namespace lockstep::probe
