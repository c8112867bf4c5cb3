// lockstep diverge: where two engines part, and whether that is a tie, a drift or a defect.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "validation/diverge/diverge.h"
#include "validation/diverge/drift_class.h"

namespace lockstep {
namespace {

struct Arguments {
  std::string a;
  std::string b;
  std::string prompts;
  std::string model;
  std::string declared = "bf16";
  std::string drift_limit = "w8";
  std::string html;
  std::vector<std::string> only;
  DivergeOptions options;
  int timeout_s = 1800;
  bool json = false;
};

void add_options(CLI::App& app, Arguments& arguments) {
  const auto classes = CLI::IsMember({"fp32", "f16", "bf16", "w8", "w4"});
  app.add_option("A", arguments.a,
                 "Reference: a program and its flags in one word (quoted), http://HOST:PORT, or "
                 "oracle:PREFIX")
      ->required();
  app.add_option("B", arguments.b, "What is judged, as A; no oracle")->required();
  app.add_option("--prompts", arguments.prompts,
                 "Oracle prefix, or a .jsonl of {name, ids} or {name, prompt}")
      ->required();
  app.add_option("--prompt", arguments.only, "Names of prompts to take (default: all)");
  app.add_option("--model", arguments.model,
                 "Checkpoint folder: --model of programs that name none, logit scale");
  app.add_option("--precision", arguments.declared, "Coarsest arithmetic that both sides claim")
      ->check(classes)
      ->capture_default_str();
  app.add_option("--drift-limit", arguments.drift_limit, "Coarsest that may still be DRIFT")
      ->check(classes)
      ->capture_default_str();
  app.add_option("--max-tokens", arguments.options.max_tokens, "Tokens a prompt")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--local", arguments.options.n_local,
                 "Prompts whose operations are looked at one by one, where both sides can")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--served-model-a", arguments.options.side_a.served_model, "Endpoint's model");
  app.add_option("--served-model-b", arguments.options.side_b.served_model, "Endpoint's model");
  app.add_option("--top", arguments.options.side_a.top, "Log-probabilities a step")
      ->check(CLI::Range(2, 20))
      ->capture_default_str();
  app.add_option("--timeout", arguments.timeout_s, "Seconds that a side may take")
      ->check(CLI::Range(1, 86400));
  app.add_option("--html", arguments.html, "Write a report for people here");
  app.add_flag("--json", arguments.json, "Print the report as JSON");
}

int exit_code(ForkVerdict verdict) {
  switch (verdict) {
    case ForkVerdict::same:
    case ForkVerdict::tie:
      return static_cast<int>(ExitCode::pass);
    case ForkVerdict::undecided:
      return static_cast<int>(ExitCode::could_not_judge);
    case ForkVerdict::mistrusted:
      return static_cast<int>(ExitCode::mistrusted);
    case ForkVerdict::drift:
    case ForkVerdict::defect:
      return static_cast<int>(ExitCode::fail);
  }
  LOCKSTEP_CHECK(false);
  return 0;
}

std::vector<DivergePrompt> chosen_prompts(const Arguments& arguments) {
  std::vector<DivergePrompt> prompts = read_prompts(arguments.prompts);
  if (arguments.only.empty()) return prompts;
  std::erase_if(prompts, [&](const DivergePrompt& prompt) {
    return std::ranges::find(arguments.only, prompt.name) == arguments.only.end();
  });
  if (prompts.size() != arguments.only.size()) {
    fail_with(ExitCode::usage, "--prompt: {} holds not all of these", arguments.prompts);
  }
  return prompts;
}

int judge(Arguments& arguments) {
  if (!arguments.html.empty()) require_writable("--html", arguments.html);
  DivergeOptions& options = arguments.options;
  options.side_b.top = options.side_a.top;
  for (SideOptions* side : {&options.side_a, &options.side_b}) {
    side->model = arguments.model;
    side->timeout = std::chrono::seconds(arguments.timeout_s);
  }
  options.checkpoint = arguments.model;
  options.judge.declared = drift_class(arguments.declared).value();
  options.judge.coarsest = drift_class(arguments.drift_limit).value();
  options.judge.min_steps = 1;
  const auto a = make_side(arguments.a, options.side_a);
  const auto b = make_side(arguments.b, options.side_b);
  const DivergeReport report = diverge(*a, *b, chosen_prompts(arguments), options);
  if (!arguments.html.empty()) write_file_atomically(arguments.html, diverge_html(report));
  fmt::print("{}",
             arguments.json ? diverge_json(report) : diverge_text(report, stdout_has_colour()));
  return exit_code(report.judgement.verdict);
}

int run(int argc, char** argv) {
  CLI::App app{"Where two engines part: SAME, TIE, DRIFT or DEFECT", "lockstep diverge"};
  Arguments arguments;
  add_options(app, arguments);
  if (const auto ended = parse_command_line(app, argc, argv)) return *ended;
  try {
    return judge(arguments);
  } catch (const Error& error) {
    if (arguments.json) {
      const nlohmann::ordered_json json = {{"verdict", "ERROR"}, {"error", error.what()}};
      fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    }
    throw;
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-diverge", [&] { return lockstep::run(argc, argv); });
}
