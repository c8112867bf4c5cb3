// lockstep bench proxy: what the proxy costs. The same request in turn to a rank with --tp 1 and
// through a proxy in front of another such rank, in one run, so that both meet the same neighbours.
#include <CLI/CLI.hpp>
#include <chrono>
#include <nlohmann/json.hpp>

#include "bench/commands.h"
#include "bench/timer.h"
#include "engine/base/error.h"
#include "engine/base/golden_folder.h"
#include "engine/base/listening_process.h"
#include "engine/base/table.h"
#include "engine/serve/http_client.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct ProxyBenchSettings {
  std::string model;  // empty: the golden model
  int n_pairs = 30;
  int n_tokens = 64;
  bool json = false;
};

// With one rank, listening.
ListeningProcess start(const std::string& name, std::vector<std::string> argv) {
  argv.insert(argv.begin(), sibling_program(name).string());
  argv.insert(argv.end(), {"--tp=1", "--port=0"});
  return ListeningProcess(argv, "\"event\":\"listening\"");
}

struct Sample {
  double first_ms = 0.0;      // until the first token
  double tokens_per_s = 0.0;  // after it
};

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

Sample measure(const ListeningProcess& server, int seed, int n_tokens) {
  const Json body = {{"prompt", "def fibonacci(n):"},
                     {"stream", true},
                     {"seed", seed},
                     {"temperature", 1.0},
                     {"ignore_eos", true},
                     {"max_tokens", n_tokens}};
  const Clock::time_point begin = Clock::now();
  serve::HttpClient client("127.0.0.1", server.port());
  client.send(serve::HttpClient::request_text("POST", "/v1/completions", body.dump()));
  if (!client.wait_for("data: ")) fail_with(ExitCode::could_not_judge, "no stream came");
  Sample sample;
  sample.first_ms = ms_since(begin);
  const serve::HttpAnswer answer = client.receive();
  if (answer.status != 200 || !answer.complete) {
    fail_with(ExitCode::could_not_judge, "an answer failed: {} {}", answer.status, answer.body);
  }
  sample.tokens_per_s = 1000.0 * n_tokens / (ms_since(begin) - sample.first_ms);
  return sample;
}

int bench_proxy(const ProxyBenchSettings& settings) {
  const std::string model =
      settings.model.empty() ? (golden_folder() / "tiny-qwen3_5").string() : settings.model;
  const ListeningProcess direct = start("lockstep-rank", {"serve", "--model=" + model});
  const ListeningProcess proxied = start("lockstep-serve", {"--model=" + model});
  std::vector<double> first_direct, first_proxied, added_ms, first_ratio, rate_ratio, rate_direct,
      rate_proxied;
  for (int i = -2; i < settings.n_pairs; ++i) {
    // In the order A B, then B A: a drift of the machine falls on both.
    const bool direct_first = i % 2 == 0;
    const Sample a = measure(direct_first ? direct : proxied, i + 2, settings.n_tokens);
    const Sample b = measure(direct_first ? proxied : direct, i + 2, settings.n_tokens);
    if (i < 0) continue;  // warm-up
    const Sample& plain = direct_first ? a : b;
    const Sample& through = direct_first ? b : a;
    first_direct.push_back(plain.first_ms);
    first_proxied.push_back(through.first_ms);
    added_ms.push_back(through.first_ms - plain.first_ms);
    first_ratio.push_back(through.first_ms / plain.first_ms);
    rate_direct.push_back(plain.tokens_per_s);
    rate_proxied.push_back(through.tokens_per_s);
    rate_ratio.push_back(through.tokens_per_s / plain.tokens_per_s);
  }
  const Json json = {{"pairs", settings.n_pairs},
                     {"tokens", settings.n_tokens},
                     {"first_token_ms",
                      {{"direct", median(first_direct)},
                       {"proxy", median(first_proxied)},
                       {"added", median(added_ms)},
                       {"ratio", median(first_ratio)}}},
                     {"tokens_per_s",
                      {{"direct", median(rate_direct)},
                       {"proxy", median(rate_proxied)},
                       {"ratio", median(rate_ratio)}}}};
  if (settings.json) {
    fmt::print("{}\n", json.dump(1));
    return 0;
  }
  Table table({{"median of pairs"}, {"direct"}, {"proxy"}, {"ratio"}});
  table.add_row({"first token, ms", fmt::format("{:.2f}", median(first_direct)),
                 fmt::format("{:.2f}", median(first_proxied)),
                 fmt::format("{:.3f}", median(first_ratio))});
  table.add_row({"tokens/s", fmt::format("{:.1f}", median(rate_direct)),
                 fmt::format("{:.1f}", median(rate_proxied)),
                 fmt::format("{:.3f}", median(rate_ratio))});
  table.print();
  fmt::print("the proxy adds {:.2f} ms to the first token (median of {} pairs)\n", median(added_ms),
             settings.n_pairs);
  return 0;
}

}  // namespace

void add_proxy_command(CLI::App& app, int& exit_code) {
  auto settings = std::make_shared<ProxyBenchSettings>();
  CLI::App* command = app.add_subcommand(
      "proxy", "What the proxy adds, against talking to a rank directly, in one run");
  command->add_option("--model", settings->model, "Checkpoint (default: the golden model)");
  command->add_option("--pairs", settings->n_pairs, "Requests to each")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--tokens", settings->n_tokens, "Tokens of a request")
      ->check(CLI::Range(2, 100000))
      ->capture_default_str();
  command->add_flag("--json", settings->json, "Print JSON");
  command->callback([settings, &exit_code] { exit_code = bench_proxy(*settings); });
}

}  // namespace lockstep
