#include "hardware-probe/app/options.h"

#include <CLI/CLI.hpp>

#include "engine/base/error.h"
#include "hardware-probe/cards/card_database.h"

namespace lockstep::probe {

const char* const kProgramVersion = "0.1.0";

namespace {

// An empty word is a script's mistake: it must mean neither the real machine nor no nonce.
const CLI::Validator kNotEmpty(
    [](const std::string& text) { return text.empty() ? std::string("is empty") : std::string(); },
    "");

const CLI::Validator kNamesSimulation(
    [](const std::string& text) {
      if (!text.empty()) return std::string();
      std::string cards;
      for (const Card& card : card_database().cards())
        cards += (cards.empty() ? "" : ", ") + card.name;
      return fmt::format(
          "is empty: give CARD[*1][+CARD][,FAULT...]; cards: {}; --list-faults names the faults",
          cards);
    },
    "");

void refuse_empty_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_min() > 0) option->check(kNotEmpty);
  }
}

void add_run_options(CLI::App& app, Options& options) {
  app.add_flag_callback(
      "--quick", [&] { options.mode = Mode::quick; }, "about 2 minutes (default)");
  app.add_flag_callback(
      "--standard", [&] { options.mode = Mode::standard; },
      "about 9 minutes for two cards: heat, cards alone and together");
  app.add_flag_callback(
      "--deep", [&] { options.mode = Mode::deep; }, "about an hour: long soaks, bit fade");
  app.get_option("--quick")->excludes("--standard")->excludes("--deep");
  app.get_option("--standard")->excludes("--deep");
  app.add_option("--sim", options.sim, "judge a synthetic machine: CARD[*1][+CARD][,FAULT...]")
      ->check(kNamesSimulation)
      ->type_name("SPEC");
  app.add_option("--replay", options.replay, "judge the observations of a record or report again")
      ->type_name("FILE")
      ->excludes("--sim");
  app.add_option("--record", options.record, "write the observations after every step")
      ->type_name("FILE");
  app.add_flag("--json", options.json, "print the signed report as JSON");
  app.add_option("--report", options.report, "write the signed report")->type_name("FILE");
  app.add_option("--html", options.html, "write the page")->type_name("FILE");
  app.add_option("--profile", options.profile, "write the profile for bench and gate")
      ->type_name("FILE");
  app.add_option("--claim", options.claim, "the card that the seller promised")->type_name("CARD");
  app.add_option("--nonce", options.nonce, "the buyer's word that seeds every test pattern")
      ->type_name("TEXT");
  app.add_option("--compare", options.compare, "an older report or record")->type_name("FILE");
  app.add_option("--key", options.key, "Ed25519 key (PEM) to sign with; made when absent")
      ->type_name("FILE");
  app.add_flag("--list-cards", options.list_cards, "print the card database");
  app.add_flag("--list-faults", options.list_faults, "print the faults that --sim knows");
  app.add_option("--step", options.step)->group("");
  refuse_empty_values(app);
}

void add_verify(CLI::App& app, Options& options) {
  CLI::App* verify =
      app.add_subcommand("verify", "check a report's digest, signature, nonce and reasoning");
  verify->add_option("REPORT", options.verify, "report file")->required();
  verify->add_option("--nonce", options.nonce, "the nonce that you gave the seller");
  verify->add_option("--public-key", options.public_key, "the key (hex) that you expect");
  verify->footer(
      "Exit codes: 0 valid, 1 not valid, 2 usage, 4 whole but SIMULATED (no card was seen).");
  refuse_empty_values(*verify);
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  CLI::App app("Hardware acceptance for NVIDIA cards: what it is, what is wrong, whether to buy.",
               "lockstep-probe");
  app.footer(
      "Exit codes: 0 ACCEPT, 1 REJECT, 2 usage, 3 INCONCLUSIVE, 5 ACCEPT WITH NOTES.\n"
      "'verify' has its own: see verify --help.");
  app.set_version_flag("--version", kProgramVersion);
  Options options;
  add_run_options(app, options);
  add_verify(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool asked = error.get_exit_code() == 0;
    if (asked) {
      app.exit(error);
    } else {
      fmt::print(stderr, "lockstep-probe: {}\n", error.what());
    }
    exit_code = asked ? 0 : static_cast<int>(ExitCode::usage);
    return std::nullopt;
  }
  return options;
}

}  // namespace lockstep::probe
