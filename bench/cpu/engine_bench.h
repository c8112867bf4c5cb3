// The engine end to end, through lockstep-generate: prefill and decode of prompts of the oracle.
#pragma once

#include <chrono>
#include <filesystem>

#include "bench/cpu/results.h"
#include "bench/cpu/roof_table.h"
#include "bench/cpu/settings.h"
#include "engine/model/config.h"

namespace lockstep {

// Shares of the roofs that the design asks of the engine on a CPU.
inline constexpr double kPrefillFloor = 0.25;
inline constexpr double kDecodeFloor = 0.50;

struct EngineSetup {
  int n_ranks;
  int n_threads;  // of each rank
  int n_drafts;
};

// TP=1 with each number of threads, then TP=2 with one thread a rank; each with 0 and 3 drafts.
std::vector<EngineSetup> engine_setups(const CpuBenchSettings& settings);

struct BenchPrompt {
  std::string name;
  std::vector<int32_t> ids;
};

// The settings' prompts of GOLDEN/oracle/public.json. Throws Error that names an absent one.
std::vector<BenchPrompt> read_bench_prompts(const CpuBenchSettings& settings);

// The job file of one start: a warm-up, then every prompt, greedy and without prefix cache.
std::string engine_jobs(const std::vector<BenchPrompt>& prompts, int n_decode_tokens);

struct EngineTiming {
  int64_t prefill_tokens = 0;
  double prefill_s = 0;
  int64_t decode_tokens = 0;
  double decode_s = 0;
  int64_t n_rounds = 0;
  int64_t n_drafts = 0;
};

// One line of results.jsonl. Throws Error that names a missing field.
EngineTiming parse_timing(const std::string& line);

// One start of lockstep-generate, `argv` without its files, which go to FOLDER/jobs.jsonl and
// FOLDER/out: a timing for each job. Throws Error with the engine's words.
std::vector<EngineTiming> start_engine(std::vector<std::string> argv, const std::string& jobs,
                                       const std::filesystem::path& folder,
                                       std::chrono::minutes deadline = std::chrono::minutes(30));

// One start of the engine: books every prompt against the roofs of n_ranks * n_threads threads.
void run_engine_bench(const CpuBenchSettings& settings, const EngineSetup& setup,
                      const std::vector<BenchPrompt>& prompts, const ModelConfig& config,
                      const WeightBytes& weights, ThreadPool& pool, RoofTable& roofs,
                      Results& results);

}  // namespace lockstep
