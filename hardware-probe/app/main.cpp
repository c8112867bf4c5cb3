#include <fmt/core.h>

#include <csignal>
#include <cstdio>
#include <ctime>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "hardware-probe/app/options.h"
#include "hardware-probe/app/real_run.h"
#include "hardware-probe/cards/card_database.h"
#include "hardware-probe/collect/steps.h"
#include "hardware-probe/report/report.h"
#include "hardware-probe/sim/faults.h"
#include "hardware-probe/sim/sim_backend.h"

namespace lockstep::probe {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

void on_signal(int) {
  g_interrupted = 1;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

int list_cards() {
  fmt::print("{:<18} {:<28} {:<5} {:>4} {:>6} {:>7} {:>7} {:>6} {}\n", "card", "driver's name",
             "form", "SM", "MHz", "mem MHz", "GB/s", "NVLink", "PCI ids");
  for (const Card& card : card_database().cards()) {
    std::string ids;
    for (const std::string& id : card.pci_ids) ids += (ids.empty() ? "" : " ") + id;
    fmt::print("{:<18} {:<28} {:<5} {:>4} {:>6} {:>7} {:>7.0f} {:>6} {}\n", card.name,
               card.reported, card.form, card.sm, card.max_sm_mhz, card.memory_mhz,
               card.theory_gbps(), card.nvlinks, ids);
  }
  return 0;
}

int list_faults() {
  fmt::print("{:<18} {:<8} {:<9} {}\n", "fault", "found by", "from mode", "what is wrong");
  for (const sim::Fault& fault : sim::faults()) {
    fmt::print("{:<18} {:<8} {:<9} {}\n", fault.name, fault.check, mode_name(fault.first_mode),
               fault.description);
  }
  return 0;
}

int verify(const Options& options) {
  const Verification result = verify_report(read_text_file(options.verify), options.verify,
                                            options.nonce, options.public_key, card_database());
  for (const std::string& line : result.lines) fmt::print("{}\n", line);
  fmt::print("{}", verification_text(result, options.verify));
  return static_cast<int>(verification_exit_code(result));
}

void show_progress(const StepSpec& spec, size_t done, size_t total) {
  fmt::print(stderr, "\r\x1b[K[{}/{}] {} {}", done + 1, total, spec.check, spec.target());
  std::fflush(stderr);
}

Observations run_probe(const Options& options) {
  CollectOptions collecting;
  collecting.mode = options.mode;
  collecting.nonce = options.nonce;
  collecting.interrupted = [] { return g_interrupted != 0; };
  if (!options.record.empty()) {
    collecting.save = [&](const Observations& seen) {
      write_file_atomically(options.record, observations_to_json(seen, 1) + "\n");
    };
  }
  if (!options.sim.empty()) {
    if (options.nonce.empty()) collecting.nonce = "lockstep-sim";
    const auto backend = sim::open_sim(sim::machine_from_spec(options.sim, card_database()));
    const auto executor = in_process_executor(*backend);
    collecting.backend_name = "sim";
    return collect(*executor, collecting);
  }
  if (options.nonce.empty()) collecting.nonce = random_hex(16);
  if (stderr_is_terminal()) collecting.progress = show_progress;
  ::signal(SIGINT, on_signal);
  ::signal(SIGTERM, on_signal);
  collecting.backend_name = "real";
  const std::string started = utc_now();
  const auto executor = child_executor(collecting.interrupted);
  Observations seen = collect(*executor, collecting);
  if (stderr_is_terminal()) fmt::print(stderr, "\r\x1b[K");
  seen.started = started;
  seen.ended = utc_now();
  if (!options.record.empty()) collecting.save(seen);
  return seen;
}

// What is written when the machine has been probed.
void require_writable_outputs(const Options& options) {
  const std::pair<const char*, const std::string&> outputs[] = {{"--record", options.record},
                                                                {"--report", options.report},
                                                                {"--html", options.html},
                                                                {"--profile", options.profile}};
  for (const auto& [flag, path] : outputs) {
    if (!path.empty()) require_writable(flag, path);
  }
}

int run(const Options& options) {
  require_writable_outputs(options);
  const CardDatabase& cards = card_database();
  if (!options.claim.empty()) cards.get(options.claim);
  std::optional<Observations> older;
  if (!options.compare.empty())
    older = observations_from_json(read_text_file(options.compare), options.compare);
  const SigningKey key =
      options.key.empty() ? SigningKey::generate() : SigningKey::load_or_create(options.key);
  const Observations seen =
      options.replay.empty()
          ? run_probe(options)
          : observations_from_json(read_text_file(options.replay), options.replay);
  Judgement judgement = judge(seen, cards, options.claim);
  if (older.has_value()) {
    for (Finding& finding : compare_runs(seen, *older, cards))
      judgement.findings.push_back(std::move(finding));
    judgement.verdict = verdict_of(judgement.findings);
  }
  const Profile profile = make_profile(seen, judgement, cards);
  const ReportInput input{seen, judgement, profile, options.claim, kProgramVersion};
  const std::string report = report_to_json(input, key);
  if (!options.report.empty()) write_file_atomically(options.report, report);
  if (!options.html.empty()) write_file_atomically(options.html, report_to_html(input));
  if (!options.profile.empty()) write_file_atomically(options.profile, profile_to_json(profile));
  const std::string shown = options.json ? report : report_to_text(input, stdout_has_colour());
  if (std::fwrite(shown.data(), 1, shown.size(), stdout) != shown.size() ||
      std::fflush(stdout) != 0) {
    fail("stdout: cannot write the report");
  }
  return verdict_exit_code(judgement.verdict);
}

int dispatch(const Options& options) {
  if (!options.step.empty()) return run_child_step(options.step);
  if (options.list_cards) return list_cards();
  if (options.list_faults) return list_faults();
  return options.verify.empty() ? run(options) : verify(options);
}

}  // namespace
}  // namespace lockstep::probe

int main(int argc, char** argv) {
  using lockstep::Error;
  using lockstep::ExitCode;
  return lockstep::run_main("lockstep-probe", [&]() -> int {
    int exit_code = 0;
    const auto options = lockstep::probe::parse_options(argc, argv, exit_code);
    if (!options.has_value()) return exit_code;
    try {
      return lockstep::probe::dispatch(*options);
    } catch (const Error& error) {
      // Exit 1 means REJECT here, so an operating error must not look like one; a file that is not
      // there or cannot be read is the caller's.
      throw Error(error.what(), error.code() == ExitCode::fail ? ExitCode::usage : error.code());
    }
  });
}
