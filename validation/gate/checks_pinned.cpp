// The bits themselves: numerics are pinned (docs/numerics.md), so a run of the golden model gives
// the digests that were recorded. A change that means to change bits records them again.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "validation/gate/check.h"
#include "validation/gate/receipt.h"
#include "validation/gate/run_digest.h"
#include "validation/gate/run_specs.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

const RunSpec kShortBf16{
    .label = "short-bf16", .tp = 1, .precision = Precision::bf16, .short_prompts = true};

std::filesystem::path pinned_file(const GateOptions& options) {
  return options.oracle.string() + "-bits.json";
}

// Names and digests of what this engine makes.
Json measured_bits(GateContext& gate) {
  return {{"format", "lockstep-bits"},
          {"format_version", 1},
          {"model", folder_digest(gate.options.model)},
          {"runs",
           {{"short-bf16", run_digest(gate.runs.results(kShortBf16))},
            {"sampled", run_digest(gate.runs.results(kSampledPlain, sampled_jobs(gate)))}}}};
}

void judge_bits(GateStep& step, const Json& pinned, const Json& measured) {
  for (const auto& [run, digest] : measured["runs"].items()) {
    const Json want = pinned.value("runs", Json::object()).value(run, Json());
    if (want == digest) continue;
    step.verdict = Verdict::fail;
    step.detail = fmt::format("run {} gives {}, pinned is {}", run, digest.dump(), want.dump());
    return;
  }
  step.detail = fmt::format("{} runs", measured["runs"].size());
}

void pinned_bits(GateContext& gate, GateStep& step) {
  if (!gate.options.prompts.empty()) {
    return skip(step, "the pinned bits are those of all prompts: leave --prompts out");
  }
  const std::filesystem::path file = pinned_file(gate.options);
  if (!std::filesystem::exists(file)) return skip(step, "no bits are pinned beside this oracle");
  const Json pinned = Json::parse(read_text_file(file), nullptr, false);
  if (!pinned.is_object() || pinned.value("format", Json()) != Json("lockstep-bits")) {
    fail_with(ExitCode::could_not_judge, "{}: holds no pinned bits", file.string());
  }
  if (pinned.value("model", Json()) != Json(folder_digest(gate.options.model))) {
    return skip(step, "the pinned bits are of another checkpoint");
  }
  judge_bits(step, pinned, measured_bits(gate));
}

bool pinned_twin(GateContext& gate) {
  std::vector<EngineResult> results = gate.runs.results(kShortBf16);
  flip_one_bit(results);
  GateStep step;
  const Json right = {{"runs", {{"a", run_digest(gate.runs.results(kShortBf16))}}}};
  judge_bits(step, right, {{"runs", {{"a", run_digest(results)}}}});
  return step.verdict == Verdict::fail;
}

}  // namespace

std::string pinned_bits_json(GateContext& gate) {
  return measured_bits(gate).dump(1) + "\n";
}

const std::vector<CheckDefinition>& pinned_checks() {
  static const std::vector<CheckDefinition> checks = {
      {"pinned-bits", "The golden model gives its recorded bits", pinned_bits, pinned_twin},
  };
  return checks;
}

}  // namespace lockstep
