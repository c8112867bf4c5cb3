#include "validation/ops/op_exact.h"

#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/base/process.h"
#include "validation/engine_run.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::minutes kLimit{10};

Json run_program(const std::filesystem::path& program, const std::vector<std::string>& arguments) {
  if (!std::filesystem::exists(program)) {
    fail_with(ExitCode::could_not_judge, "{}: no such program", program.string());
  }
  std::vector<std::string> argv = {program.string()};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  const ProcessResult result = run_process(argv, kLimit);
  const std::string words = failure_reason(result.stderr_text);
  if (result.exit_code == static_cast<int>(ExitCode::skipped)) {
    fail_with(ExitCode::skipped, "{}", words);
  }
  if (result.timed_out || result.exit_code != 0) {
    fail_with(ExitCode::could_not_judge, "{}: {}", program.filename().string(),
              words.empty() ? fmt::format("exit code {}", result.exit_code) : words);
  }
  const Json json = Json::parse(result.stdout_text, nullptr, false);
  if (!json.is_object()) {
    fail_with(ExitCode::could_not_judge, "{}: printed no JSON", program.filename().string());
  }
  return json;
}

CardFacts card_of(const Json& json) {
  const Json card = json.value("card", Json::object());
  if (!card.is_object()) return {};
  return {card.value("name", ""), card.value("uuid", ""), card.value("driver", ""),
          card.value("arch", 0), card.value("multiprocessors", 0)};
}

ExactOutput parse_output(const Json& json, const std::string& label) {
  try {
    return {json.at("op"),    json.at("name"),   json.at("seed"),
            json.at("count"), json.at("digest"), json.at("head").get<std::vector<double>>()};
  } catch (const Json::exception&) {
    fail("{}: an integer-exact output without op, name, seed, count, digest or head", label);
  }
}

}  // namespace

std::map<std::string, std::string> exact_seeds(const SourceUnits& units) {
  std::map<std::string, std::string> seeds;
  for (const auto& [op, files] : units) seeds[op] = unit_digest(files).substr(0, 16);
  return seeds;
}

// Ops without an exact case are no mistake, and ops-exact refuses them.
std::set<std::string> ops_with_cases(const std::filesystem::path& program) {
  const Json json = run_program(program, {"--list", "--json"});
  return json.value("ops", std::set<std::string>());
}

ExactReport run_exact(const std::filesystem::path& program, const std::string& backend,
                      const std::map<std::string, std::string>& seeds) {
  std::string list;
  const std::set<std::string> known = ops_with_cases(program);
  for (const auto& [op, seed] : seeds) {
    if (known.contains(op)) list += (list.empty() ? "" : ",") + op + "=" + seed;
  }
  std::vector<std::string> arguments = {"--backend", backend, "--json"};
  if (!list.empty()) arguments.insert(arguments.end(), {"--seeds", list});
  const Json json = run_program(program, arguments);
  return {card_of(json), parse_exact(json.value("cases", Json()).dump(), program.string())};
}

CardFacts read_card(const std::filesystem::path& program) {
  return card_of(run_program(program, {"--backend", "cuda", "--json"}));
}

std::map<std::string, std::string> exact_differences(const std::vector<ExactOutput>& card,
                                                     const std::vector<ExactOutput>& host) {
  std::map<std::string, std::string> differences;
  std::map<std::pair<std::string, std::string>, const ExactOutput*> known;
  std::map<std::string, int> n_answered;
  for (const ExactOutput& output : host) known[{output.op, output.name}] = &output;
  for (const ExactOutput& output : card) {
    ++n_answered[output.op];
    const auto expected = known.find({output.op, output.name});
    if (expected == known.end()) {
      differences.emplace(output.op, output.name + ": the host knows no such case");
    } else if (!output.same_as(*expected->second)) {
      differences.emplace(output.op,
                          fmt::format("{}: the card gave {} and the host computes {}", output.name,
                                      output.digest, expected->second->digest));
    }
  }
  for (const ExactOutput& output : host) {
    if (n_answered[output.op] == 0) {
      differences.emplace(output.op, "no output of its integer-exact cases");
    }
  }
  return differences;
}

std::string exact_json(const std::vector<ExactOutput>& outputs) {
  Json list = Json::array();
  for (const ExactOutput& output : outputs) {
    list.push_back({{"op", output.op},
                    {"name", output.name},
                    {"seed", output.seed},
                    {"count", output.n_values},
                    {"digest", output.digest},
                    {"head", output.head}});
  }
  return list.dump();
}

std::vector<ExactOutput> parse_exact(const std::string& text, const std::string& label) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_array()) fail("{}: integer-exact outputs must be a list", label);
  std::vector<ExactOutput> outputs;
  for (const Json& item : json) outputs.push_back(parse_output(item, label));
  return outputs;
}

}  // namespace lockstep
