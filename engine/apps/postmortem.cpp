// lockstep postmortem: explains a lockstep failure.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/serve/postmortem.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::ordered_json;

// What finds the kinds of trouble that do not come back when the same work is done again.
constexpr const char* kProbeAdvice =
    "not reproduced: the same requests give the same bits on both ranks now. Suspect the hardware, "
    "and run on these cards:\n"
    "  lockstep probe --standard   C12 C13 memory patterns cold and hot, C15 every SM against the "
    "host, C17 C18 under load, C07 to C09 and C19 to C23 the links, C25 Xids\n"
    "  lockstep probe --deep       C14 memory patterns after a long rest\n";

// The ranks did not disagree: one ended, or none went on.
constexpr const char* kEndAdvice =
    "not reproduced: the same work gives the same bits on both ranks, and their records do not "
    "differ. This was no lockstep failure but the end of a rank, in its program or by a signal: "
    "send the requests in requests.jsonl again, one at a time, and look at the ranks' lines in the "
    "log\n";

Json to_json(const Postmortem& report) {
  Json json = {{"reason", report.reason},
               {"requests", report.n_requests},
               {"replayed", report.n_replayed},
               {"not_replayed", report.not_replayed},
               {"reproduced", report.reproduced()}};
  for (const RecordDifference& record : report.records) {
    json["record"] = {{"round", record.round},
                      {"field", record.field},
                      {"rank_0", Json::parse(record.rank_0)},
                      {"rank_1", Json::parse(record.rank_1)}};
  }
  if (report.first.found()) {
    json["first_difference"] = {{"request", report.first.request}, {"tensor", report.first.tensor},
                                {"row", report.first.row},         {"index", report.first.index},
                                {"rank_0", report.first.rank_0},   {"rank_1", report.first.rank_1}};
  }
  return json;
}

void print(const Postmortem& report) {
  fmt::print("halt: {}\n", report.reason);
  for (const RecordDifference& record : report.records) {
    fmt::print("records of round {} differ in {}:\n  rank 0 {}\n  rank 1 {}\n", record.round,
               record.field, record.rank_0, record.rank_1);
  }
  for (const std::string& why : report.not_replayed) fmt::print("not replayed: {}\n", why);
  fmt::print("replayed {} of {} requests with taps on both ranks\n", report.n_replayed,
             report.n_requests);
  if (!report.reproduced()) {
    fmt::print("{}", report.lockstep_failure() ? kProbeAdvice : kEndAdvice);
    return;
  }
  if (!report.first.found()) {
    fmt::print(
        "reproduced: the ranks disagree again, and no tapped replicated tensor differs: they "
        "part behind the final norm (logits, sampling, tokens)\n");
    return;
  }
  const TensorDifference& first = report.first;
  fmt::print(
      "reproduced: {} is the first replicated tensor that differs ({}, row {}, element {}: "
      "{} on rank 0, {} on rank 1)\n",
      first.tensor, first.request, first.row, first.index, first.rank_0, first.rank_1);
}

}  // namespace
}  // namespace lockstep::serve

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-postmortem", [&] {
    CLI::App app("Run the requests of a halt again and name the first tensor that differs");
    std::string folder;
    bool json = false;
    app.add_option("folder", folder, "A halt's folder in the server's --halt-dir")->required();
    app.add_flag("--json", json, "Print JSON");
    if (const auto ended = lockstep::parse_command_line(app, argc, argv)) return *ended;
    const lockstep::serve::Postmortem report = lockstep::serve::examine_halt(folder);
    if (json) {
      fmt::print("{}\n", lockstep::serve::to_json(report).dump(1));
    } else {
      lockstep::serve::print(report);
    }
    return static_cast<int>(report.reproduced() ? lockstep::ExitCode::pass
                                                : lockstep::ExitCode::could_not_judge);
  });
}
