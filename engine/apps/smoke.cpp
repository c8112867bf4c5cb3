// lockstep smoke: the serving scenarios against any endpoint.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/base/table.h"
#include "engine/serve/smoke.h"

namespace lockstep::serve {
namespace {

int smoke(const SmokeOptions& options, bool as_json) {
  const std::vector<SmokeResult> results = run_smoke(options);
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  Table table({{"verdict"}, {"scenario"}, {"note"}});
  bool failed = false;
  for (const SmokeResult& result : results) {
    failed = failed || result.verdict == "FAIL";
    table.add_row({result.verdict, result.scenario, result.note});
    json.push_back(
        {{"verdict", result.verdict}, {"scenario", result.scenario}, {"note", result.note}});
  }
  if (as_json) {
    fmt::print("{}\n", json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    table.print();
  }
  return static_cast<int>(failed ? ExitCode::fail : ExitCode::pass);
}

}  // namespace
}  // namespace lockstep::serve

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-smoke", [&] {
    CLI::App app("What callers do, also rudely, against any OpenAI-compatible endpoint");
    lockstep::serve::SmokeOptions options;
    bool json = false;
    bool no_images = false;
    bool no_anthropic = false;
    app.add_option("url", options.url, "http://HOST:PORT")->required();
    app.add_option("--model", options.model, "Model to name (default: the first that is listed)");
    app.add_option("--api-key", options.api_key, "Key (default: LOCKSTEP_API_KEY)");
    app.add_flag("--no-images", no_images, "Skip scenarios with pictures");
    app.add_flag("--no-anthropic", no_anthropic, "Skip the Anthropic API");
    app.add_flag("--json", json, "Print JSON");
    if (const auto ended = lockstep::parse_command_line(app, argc, argv)) return *ended;
    const char* key = std::getenv("LOCKSTEP_API_KEY");
    if (options.api_key.empty() && key != nullptr) options.api_key = key;
    options.images = !no_images;
    options.anthropic = !no_anthropic;
    return lockstep::serve::smoke(options, json);
  });
}
