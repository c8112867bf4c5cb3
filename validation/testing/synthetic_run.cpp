#include "validation/testing/synthetic_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/philox.h"
#include "engine/model/safetensors.h"

namespace lockstep::testing {
namespace {

using Json = nlohmann::json;

constexpr size_t kSteps = 96;
constexpr int64_t kTail = 8;

std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

TapMap engine_taps(int64_t n_prompt, bool with_state, uint64_t seed) {
  TapMap taps;
  const int64_t n = std::min(n_prompt, kTail);
  const auto add = [&](const std::string& tap, const std::vector<int64_t>& shape) {
    taps[tap] = random_tensor(shape, seed + taps.size());
  };
  add("embed", {n, kHidden});
  for (int layer = 0; layer < 2; ++layer) {
    for (const char* branch : {"mixer", "mlp", "out"}) {
      add(fmt::format("layers.{}.{}", layer, branch), {n, kHidden});
    }
    add(fmt::format("decode/layers.{}.out", layer), {kTail, kHidden});
  }
  add("final_norm", {n, kHidden});
  add("decode/final_norm", {kTail, kHidden});
  if (with_state) {
    add("state/layers.0.gdn_state", {4, 6, 5});
    add("state/layers.0.conv_state", {8, 3});
    add("state/layers.1.k", {2, n, 16});
    add("state/layers.1.v", {2, n, 16});
  }
  return taps;
}

StepLogits step_logits(PhiloxStream& random) {
  StepLogits step;
  double value = 12 + random.next_uniform();
  int32_t id = static_cast<int32_t>(random.next_below(kVocabulary));
  for (int i = 0; i < kTopLogits; ++i) {
    step.ids.push_back(id);
    step.values.push_back(value);
    id = (id + 7) % kVocabulary;  // 7 and 64 have no common factor: no id twice
    value -= 0.25 + random.next_uniform();
  }
  step.log_sum_exp = step.values[0] + 0.125;
  return step;
}

void add_prompt(SyntheticRun& run, const std::string& name, int64_t n_prompt, bool with_state) {
  OraclePrompt prompt;
  EngineResult result;
  PhiloxStream random(11, run.results.size());
  prompt.name = result.name = name;
  for (int64_t i = 0; i < n_prompt; ++i) {
    prompt.ids.push_back(static_cast<int32_t>(random.next_below(kVocabulary)));
  }
  for (size_t i = 0; i < kSteps; ++i) {
    const StepLogits step = step_logits(random);
    prompt.greedy.push_back(step.ids[0]);
    prompt.second.push_back(step.ids[1]);
    prompt.margin.push_back(step.values[0] - step.values[1]);
    prompt.logprob.push_back(step.values[0] - step.log_sum_exp);
    result.ids.push_back(step.ids[0]);
    result.logits.push_back(step);
  }
  result.dump.taps = engine_taps(n_prompt, with_state, 100 * (run.results.size() + 1));
  prompt.taps = summarise_states(result.dump.taps);
  for (const auto& [tap, unused] : prompt.taps) {
    if (tap.find('/') == std::string::npos) prompt.bf16_noise[tap] = {0.9999, 0.01};
  }
  prompt.bf16_noise["embed"] = {1.0, 0.0};
  run.oracle.prompts.push_back(std::move(prompt));
  run.results.push_back(std::move(result));
}

Json prompt_json(const OraclePrompt& prompt) {
  Json noise = Json::object();
  for (const auto& [tap, value] : prompt.bf16_noise) {
    noise[tap] = {{"cos", value.cos}, {"rel", value.rel_l2}};
  }
  Json image;
  Json grids;
  if (prompt.has_image) {
    image = {{"w", 64}, {"h", 64}};
    grids = {{1, 4, 4}};
  }
  return {{"name", prompt.name},     {"image", image},          {"images", nullptr},
          {"ids", prompt.ids},       {"grids", grids},          {"greedy", prompt.greedy},
          {"margin", prompt.margin}, {"second", prompt.second}, {"logprob", prompt.logprob},
          {"bf16_noise", noise}};
}

// Rows of the whole tensor that `rank` of 2 holds: alternating pairs of pieces, as heads of several
// projections would be laid out.
std::vector<std::pair<int64_t, int64_t>> shard_ranges(int64_t total, int rank) {
  if (total < 4) return {{rank * (total / 2), (rank + 1) * (total / 2)}};
  const int64_t quarter = total / 4;
  return {{rank * quarter, (rank + 1) * quarter}, {(2 + rank) * quarter, (3 + rank) * quarter}};
}

// The rows of `ranges` one after the other; `text` becomes the shard description.
FloatTensor shard_of(const FloatTensor& whole,
                     const std::vector<std::pair<int64_t, int64_t>>& ranges, std::string& text) {
  FloatTensor part;
  part.shape = whole.shape;
  part.shape[0] = 0;
  const int64_t row = static_cast<int64_t>(whole.values.size()) / whole.shape[0];
  text = std::to_string(whole.shape[0]) + ";";
  for (const auto& [begin, end] : ranges) {
    text += fmt::format("{}{}:{}", part.shape[0] == 0 ? "" : ",", begin, end);
    part.shape[0] += end - begin;
    part.values.insert(part.values.end(), whole.values.begin() + begin * row,
                       whole.values.begin() + end * row);
  }
  return part;
}

void write_rank_dump(const EngineResult& result, int rank, int tp,
                     const std::filesystem::path& path) {
  SafetensorsWriter writer;
  std::map<std::string, FloatTensor> parts;
  for (const auto& [tap, tensor] : result.dump.taps) {
    const bool split = tp == 2 && tap.starts_with("state/");
    std::string text;
    parts[tap] = split ? shard_of(tensor, shard_ranges(tensor.shape[0], rank), text) : tensor;
    if (split) writer.set_metadata("shard:" + tap, text);
  }
  // Planted by tests: this replicated tap differs on rank 1.
  for (const std::string& tap : result.dump.rank_differences) {
    if (rank == 1) parts[tap].values[0] += 1;
  }
  for (const auto& [tap, part] : parts) {
    writer.add(tap, DType::F32, part.shape, bytes_of(part.values));
  }
  writer.write(path);
}

}  // namespace

OraclePrompt& SyntheticRun::prompt(const std::string& name) {
  return *std::find_if(oracle.prompts.begin(), oracle.prompts.end(),
                       [&](const OraclePrompt& one) { return one.name == name; });
}

EngineResult& SyntheticRun::result(const std::string& name) {
  return *std::find_if(results.begin(), results.end(),
                       [&](const EngineResult& one) { return one.name == name; });
}

void SyntheticRun::perturb(const std::string& prompt_name, const std::string& tap,
                           double relative) {
  PhiloxStream random(5);
  for (float& value : result(prompt_name).dump.taps.at(tap).values) {
    const double sign = random.next_below(2) == 0 ? -1 : 1;
    value = static_cast<float>(double{value} * (1 + sign * relative));
  }
}

void SyntheticRun::set_engine_margin(const std::string& prompt_name, size_t step, int32_t other,
                                     double margin) {
  EngineResult& engine = result(prompt_name);
  StepLogits& logits = engine.logits[step];
  const int32_t token = prompt(prompt_name).greedy[step];
  logits.ids = {token, other};
  logits.values = {12, 12 - margin};
  if (margin < 0) {
    std::swap(logits.ids[0], logits.ids[1]);
    std::swap(logits.values[0], logits.values[1]);
  }
  engine.ids[step] = logits.ids[0];
}

SyntheticRun make_synthetic_run(Precision precision) {
  SyntheticRun run;
  run.oracle.prefix = "synthetic";
  run.oracle.tail = kTail;
  add_prompt(run, "alpha", 20, true);
  add_prompt(run, "beta", 5, false);
  OraclePrompt picture = run.oracle.prompts[1];
  picture.name = "picture";
  picture.has_image = true;
  picture.in_scope = false;
  picture.taps.clear();
  run.oracle.prompts.push_back(picture);
  if (precision == Precision::bf16) {
    for (EngineResult& result : run.results) {
      std::erase_if(result.dump.taps,
                    [](const auto& entry) { return entry.first.starts_with("state/"); });
    }
  }
  return run;
}

FloatTensor random_tensor(const std::vector<int64_t>& shape, uint64_t seed) {
  FloatTensor tensor{shape, {}};
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  PhiloxStream random(seed);
  for (int64_t i = 0; i < n; ++i) tensor.values.push_back(2 * random.next_uniform() - 1);
  return tensor;
}

void write_tensors(const TapMap& taps, const std::string& prefix,
                   const std::filesystem::path& path) {
  SafetensorsWriter writer;
  for (const auto& [tap, tensor] : taps) {
    writer.add(prefix + tap, DType::F32, tensor.shape, bytes_of(tensor.values));
  }
  writer.write(path);
}

void write_oracle(const Oracle& oracle, const std::filesystem::path& prefix) {
  Json json = {{"tail", oracle.tail}, {"prompts", Json::array()}};
  SafetensorsWriter writer;
  for (const OraclePrompt& prompt : oracle.prompts) {
    json["prompts"].push_back(prompt_json(prompt));
    for (const auto& [tap, tensor] : prompt.taps) {
      writer.add(prompt.name + "/" + tap, DType::F32, tensor.shape, bytes_of(tensor.values));
    }
  }
  write_file_atomically(prefix.string() + ".json", json.dump());
  writer.write(prefix.string() + ".safetensors");
}

void write_model(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const FloatTensor lm_head = random_tensor({kVocabulary, kHidden}, 77);
  SafetensorsWriter writer;
  writer.add("lm_head.weight", DType::F32, lm_head.shape, bytes_of(lm_head.values));
  writer.write(folder / "model.safetensors");
}

void write_engine_outputs(const std::vector<EngineResult>& results, int tp,
                          const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::string lines;
  for (const EngineResult& result : results) {
    Json steps = Json::array();
    for (const StepLogits& step : result.logits) {
      steps.push_back({{"ids", step.ids}, {"values", step.values}, {"lse", step.log_sum_exp}});
    }
    const int n_prompt = result.name == "alpha" ? 20 : result.name == "probe" ? 1 : 5;
    lines += Json{{"name", result.name},
                  {"ids", result.ids},
                  {"finish_reason", "length"},
                  {"prompt_tokens", n_prompt},
                  {"completion_tokens", result.ids.size()},
                  {"logits", steps}}
                 .dump() +
             "\n";
    for (int rank = 0; rank < tp; ++rank) {
      write_rank_dump(result, rank, tp,
                      folder / fmt::format("{}.rank{}.safetensors", result.name, rank));
    }
  }
  write_file_atomically(folder / "results.jsonl", lines);
  if (tp == 2) write_file_atomically(folder / "results.rank1.jsonl", lines);
}

}  // namespace lockstep::testing
