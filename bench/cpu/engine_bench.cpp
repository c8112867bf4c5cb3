#include "bench/cpu/engine_bench.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::vector<std::string> engine_command(const CpuBenchSettings& settings, const EngineSetup& setup,
                                        int64_t max_context) {
  const fs::path program =
      settings.generate.empty() ? sibling_program("lockstep-generate") : settings.generate;
  return {program.string(),
          "--model=" + settings.model.string(),
          "--tp=" + std::to_string(setup.n_ranks),
          "--threads=" + std::to_string(setup.n_threads),
          "--mtp=" + std::to_string(setup.n_drafts),
          "--cpu-target=" + settings.cpu_target,
          "--kv=" + settings.kv,
          "--slots=1",
          "--max-context=" + std::to_string(max_context)};
}

// What the engine itself said: the memory plan comes before it.
std::string reason_of(const std::string& stderr_text) {
  const size_t at = stderr_text.find("lockstep-");
  const std::string reason = at == std::string::npos ? stderr_text : stderr_text.substr(at);
  return reason.substr(0, reason.find('\n'));
}

template <typename T>
T number(const Json& json, const char* object, const char* key) {
  const Json::json_pointer at("/" + std::string(object) + "/" + key);
  if (!json.contains(at) || !json[at].is_number()) {
    fail("results.jsonl: {}.{} is no number: is this engine older?", object, key);
  }
  return json[at].get<T>();
}

KvType kv_type(const std::string& name) {
  if (name == "bf16") return KvType::bf16;
  if (name == "fp16") return KvType::fp16;
  if (name == "int8") return KvType::int8;
  fail("--kv {}: use bf16, fp16 or int8", name);
}

}  // namespace

std::vector<EngineSetup> engine_setups(const CpuBenchSettings& settings) {
  std::vector<EngineSetup> setups;
  for (const int n_threads : settings.threads) {
    for (const int n_drafts : {0, 3}) setups.push_back({1, n_threads, n_drafts});
  }
  for (const int n_drafts : {0, 3}) setups.push_back({2, 1, n_drafts});
  return setups;
}

std::vector<BenchPrompt> read_bench_prompts(const CpuBenchSettings& settings) {
  const fs::path path = settings.golden / "oracle" / "public.json";
  const Json oracle = Json::parse(read_text_file(path, size_t{1} << 28), nullptr, false);
  if (!oracle.is_object() || !oracle.contains("prompts") || !oracle["prompts"].is_array()) {
    fail("{}: holds no list of prompts", path.string());
  }
  std::vector<BenchPrompt> prompts;
  for (const std::string& name : settings.prompts) {
    const auto at = std::find_if(oracle["prompts"].begin(), oracle["prompts"].end(),
                                 [&](const Json& p) { return p.value("name", "") == name; });
    if (at == oracle["prompts"].end()) fail("{}: holds no prompt '{}'", path.string(), name);
    prompts.push_back({name, at->at("ids").get<std::vector<int32_t>>()});
  }
  return prompts;
}

std::string engine_jobs(const std::vector<BenchPrompt>& prompts, int n_decode_tokens) {
  std::string text;
  const auto add = [&](const std::string& name, const std::vector<int32_t>& ids, int n_tokens) {
    const Json job = {{"name", name},       {"ids", ids},         {"max_tokens", n_tokens},
                      {"temperature", 0.0}, {"ignore_eos", true}, {"prefix_cache", false}};
    text += job.dump() + "\n";
  };
  add("warm-up", prompts.front().ids, 8);
  // The first token of an answer comes out of prefill.
  for (const BenchPrompt& prompt : prompts) add(prompt.name, prompt.ids, n_decode_tokens + 1);
  return text;
}

EngineTiming parse_timing(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) fail("results.jsonl: a line is not a JSON object");
  EngineTiming timing;
  timing.prefill_tokens = number<int64_t>(json, "timing", "prefill_tokens");
  timing.prefill_s = number<double>(json, "timing", "prefill_s");
  timing.decode_tokens = number<int64_t>(json, "timing", "decode_tokens");
  timing.decode_s = number<double>(json, "timing", "decode_s");
  timing.n_drafts = number<int64_t>(json, "mtp", "drafted");
  // Every round emits one token of its own beside the accepted drafts.
  timing.n_rounds = std::max(number<int64_t>(json, "mtp", "rounds"),
                             timing.decode_tokens - number<int64_t>(json, "mtp", "accepted"));
  return timing;
}

std::vector<EngineTiming> start_engine(std::vector<std::string> argv, const std::string& jobs,
                                       const fs::path& folder, std::chrono::minutes deadline) {
  const fs::path job_file = folder / "jobs.jsonl";
  write_file_atomically(job_file, jobs);
  argv.push_back("--jobs=" + job_file.string());
  argv.push_back("--out=" + (folder / "out").string());
  const ProcessResult result = run_process(argv, deadline);
  if (result.timed_out) fail("{}: did not end within {} min", argv[0], deadline.count());
  if (result.exit_code != 0) {
    fail("{} ended with exit code {}: {}", argv[0], result.exit_code,
         reason_of(result.stderr_text));
  }
  std::istringstream lines(read_text_file(folder / "out" / "results.jsonl"));
  std::vector<EngineTiming> timings;
  for (std::string line; std::getline(lines, line);) timings.push_back(parse_timing(line));
  return timings;
}

void run_engine_bench(const CpuBenchSettings& settings, const EngineSetup& setup,
                      const std::vector<BenchPrompt>& prompts, const ModelConfig& config,
                      const WeightBytes& weights, ThreadPool& pool, RoofTable& roofs,
                      Results& results) {
  LOCKSTEP_CHECK(pool.n_threads() == setup.n_ranks * setup.n_threads);
  int64_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max<int64_t>(longest, std::ssize(prompt.ids));
  const TempDir folder;
  const std::vector<EngineTiming> timings =
      start_engine(engine_command(settings, setup, longest + settings.n_decode_tokens + 64),
                   engine_jobs(prompts, settings.n_decode_tokens), folder.path());
  if (timings.size() != prompts.size() + 1) {
    fail("the engine answered {} jobs of {}", timings.size(), prompts.size() + 1);
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    const EngineTiming& timing = timings[i + 1];
    const int64_t n_prompt = std::ssize(prompts[i].ids);
    if (timing.prefill_tokens != n_prompt || timing.prefill_s <= 0 || timing.decode_s <= 0) {
      fail("job {}: {} of {} prompt tokens were timed", prompts[i].name, timing.prefill_tokens,
           n_prompt);
    }
    Series key;
    key.section = "engine";
    key.n_ranks = setup.n_ranks;
    key.n_threads = setup.n_threads;
    key.n_tokens = n_prompt;
    key.unit = "tokens/s";
    key.name = fmt::format("prefill k={}", setup.n_drafts);
    key.roof = Roof::fma;
    key.floor = kPrefillFloor;
    const auto flops = static_cast<double>(prefill_flops(config, n_prompt, setup.n_drafts > 0));
    results.add(key, static_cast<double>(n_prompt) / timing.prefill_s,
                flops / timing.prefill_s / roofs.fma(pool));
    key.name = fmt::format("decode k={}", setup.n_drafts);
    key.roof = Roof::read;
    key.floor = kDecodeFloor;
    const auto n_bytes = static_cast<double>(decode_bytes(
        config, weights,
        {timing.n_rounds, timing.n_drafts, n_prompt, timing.decode_tokens, kv_type(settings.kv)}));
    results.add(key, static_cast<double>(timing.decode_tokens) / timing.decode_s,
                n_bytes / timing.decode_s / roofs.read(weights.round, pool));
  }
}

}  // namespace lockstep
