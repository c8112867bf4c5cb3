// lockstep ops-exact: answers the exact cases of the CUDA ops (exact_case.h), on a card or by the
// host's formula, and prints digests of the answers. The gate compares both; a receipt keeps the
// card's.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/base/cli.h"
#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/ops/attention/cuda/attention_exact.h"
#include "engine/ops/common/cuda/gdn_exact.h"
#include "engine/ops/common/cuda/rows_exact.h"
#include "engine/ops/common/cuda/vision_exact.h"
#include "engine/ops/linear/cuda/linear_exact.h"
#include "engine/ops/sample/cuda/sample_exact.h"
#include "engine/ops/verify/cuda/verify_exact.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kHead = 8;  // values that are printed beside the digest

#ifdef LOCKSTEP_CUDA
#define LOCKSTEP_CARD(function) function
#else
#define LOCKSTEP_CARD(function) nullptr
#endif

// An op of a group whose answers one function gives.
template <typename Op, typename CardFunction>
ExactOp op_of_group(const char* folder, Op op, std::vector<ExactCase> cases, CardFunction card) {
  ExactOp exact{folder, std::move(cases), nullptr};
  if constexpr (!std::is_null_pointer_v<CardFunction>) {
    exact.card = [op, card](size_t index, uint64_t seed, Device& device, Stream& stream) {
      return card(op, index, seed, device, stream);
    };
  }
  return exact;
}

std::vector<ExactOp> all_ops() {
  std::vector<ExactOp> ops = {
      {"attention", attention_exact_cases(), LOCKSTEP_CARD(attention_exact_card)},
      {"linear", linear_exact_cases(), LOCKSTEP_CARD(linear_exact_card)},
      {"sample", sample_exact_cases(), LOCKSTEP_CARD(sample_exact_card)},
      {"verify", verify_exact_cases(), LOCKSTEP_CARD(verify_exact_card)}};
  for (const auto& [op, folder] : kRowsExactOps) {
    ops.push_back(op_of_group(folder, op, rows_exact_cases(op), LOCKSTEP_CARD(rows_exact_card)));
  }
  for (const auto& [op, folder] : kGdnExactOps) {
    ops.push_back(op_of_group(folder, op, gdn_exact_cases(op), LOCKSTEP_CARD(gdn_exact_card)));
  }
  for (const auto& [op, folder] : kVisionExactOps) {
    ops.push_back(
        op_of_group(folder, op, vision_exact_cases(op), LOCKSTEP_CARD(vision_exact_card)));
  }
  return ops;
}

struct Arguments {
  std::string backend = "cpu";
  std::vector<std::string> seeds;  // "op=0123456789abcdef"
  bool list = false;
  bool json = false;
};

std::vector<std::string> names_of(const std::vector<ExactOp>& ops) {
  std::vector<std::string> names;
  for (const ExactOp& op : ops) names.emplace_back(op.op);
  return names;
}

int print_ops(bool json) {
  const std::vector<std::string> names = names_of(all_ops());
  fmt::print("{}\n",
             json ? Json{{"ops", names}}.dump() : fmt::format("{}", fmt::join(names, "\n")));
  return 0;
}

std::map<std::string, std::string> parse_seeds(const std::vector<std::string>& texts,
                                               const std::vector<std::string>& known) {
  std::map<std::string, std::string> seeds;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    const std::string digits = equals == std::string::npos ? "" : text.substr(equals + 1);
    if (digits.size() != 16 || digits.find_first_not_of("0123456789abcdef") != std::string::npos) {
      fail_with(ExitCode::usage, "--seeds {}: must be op= and 16 hexadecimal digits", text);
    }
    const std::string op = text.substr(0, equals);
    if (std::find(known.begin(), known.end(), op) == known.end()) {
      fail_with(ExitCode::usage,
                "--seeds {}: op '{}' has no exact case; --list names those that have", text, op);
    }
    seeds[op] = digits;
  }
  return seeds;
}

uint64_t number_of(const std::string& digits) {
  uint64_t seed = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), seed, 16);
  return seed;
}

// A card, or nothing when the host's formula is asked for.
struct Card {
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
};

Card open_card(const std::string& backend) {
  Card card;
  if (backend == "cpu") return card;
#ifndef LOCKSTEP_CUDA
  fail_with(ExitCode::skipped,
            "this build has no CUDA kernels: build with 'cmake --preset cuda' on any machine");
#endif
  if (n_cuda_devices() == 0) {
    fail_with(ExitCode::skipped, "no CUDA device here: nvidia-smi must show one");
  }
  card.device = open_device("cuda");
  card.stream = card.device->new_stream();
  return card;
}

Json card_json(const Card& card) {
  if (!card.device) return nullptr;
  const DeviceFacts& facts = card.device->facts();
  return {{"name", facts.name},
          {"uuid", facts.uuid},
          {"driver", facts.driver},
          {"arch", facts.arch},
          {"multiprocessors", facts.n_multiprocessors}};
}

Json answer_json(const ExactOp& op, size_t index, const std::string& digits, const Card& card) {
  const ExactCase& c = op.cases[index];
  const uint64_t seed = number_of(digits);
  const std::vector<float> answer =
      card.device ? op.card(index, seed, *card.device, *card.stream) : c.host(seed);
  const size_t n_head = std::min(kHead, answer.size());
  return {{"op", op.op},
          {"name", c.name},
          {"seed", digits},
          {"count", answer.size()},
          {"digest", digest128_hex(std::as_bytes(std::span(answer)))},
          {"head",
           std::vector<float>(answer.begin(), answer.begin() + static_cast<ptrdiff_t>(n_head))}};
}

int answer(const Arguments& arguments) {
  if (arguments.seeds.empty() && !arguments.json) {
    fail_with(ExitCode::usage, "give --seeds OP=HEX for the ops to answer for; --list names them");
  }
  const std::vector<ExactOp> ops = all_ops();
  const auto seeds = parse_seeds(arguments.seeds, names_of(ops));
  const Card card = open_card(arguments.backend);
  Json cases = Json::array();
  for (const ExactOp& op : ops) {
    const auto seed = seeds.find(op.op);
    if (seed == seeds.end()) continue;
    for (size_t i = 0; i < op.cases.size(); ++i) {
      if (card.device && card.device->facts().arch < op.cases[i].least_arch) continue;
      cases.push_back(answer_json(op, i, seed->second, card));
    }
  }
  if (arguments.json) {
    fmt::print(
        "{}\n",
        Json{{"backend", arguments.backend}, {"card", card_json(card)}, {"cases", cases}}.dump());
    return 0;
  }
  if (card.device) fmt::print("{}\n", card.device->facts().name);
  for (const Json& c : cases) {
    fmt::print("{} {}  {} {}\n", c["digest"].get<std::string>(), c["seed"].get<std::string>(),
               c["op"].get<std::string>(), c["name"].get<std::string>());
  }
  return 0;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Answers the integer-exact cases of the CUDA ops: bits that a card and the formula must "
      "share. "
      "'gate' and 'receipt verify' start it",
      "lockstep ops-exact");
  Arguments arguments;
  app.add_option("--backend", arguments.backend, "cpu (the formula) or cuda (the kernels)")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--seeds", arguments.seeds,
                 "Ops to answer for with their seeds: linear=0123456789abcdef, with commas")
      ->delimiter(',');
  app.add_flag("--list", arguments.list, "Print the ops that have exact cases and stop");
  app.add_flag("--json", arguments.json, "Print JSON");
  if (const auto ended = parse_command_line(app, argc, argv)) return *ended;
  return arguments.list ? print_ops(arguments.json) : answer(arguments);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-ops-exact", [&] { return lockstep::run(argc, argv); });
}
