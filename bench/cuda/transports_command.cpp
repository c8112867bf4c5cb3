// lockstep bench transports: every transport between two cards, by size, in one run. Two processes,
// a rank each.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/commands.h"
#include "engine/base/error.h"
#include "engine/base/table.h"
#include "engine/comm/cuda/transports.h"
#include "engine/comm/mailbox.h"
#include "engine/device/device.h"

namespace lockstep {
namespace {

struct TransportsSettings {
  std::vector<int> devices = {0, 1};
  std::vector<int64_t> sizes = {10240, 20480, 40960, 81920, 131072, 262144, 524288, 1048576};
  bool json = false;
};

// Microseconds by transport, in the order of the sizes.
using Times = std::map<std::string, std::vector<double>>;

void print_json(const TransportsSettings& settings, const std::vector<TransportEntry>& entries,
                Times& times) {
  nlohmann::json rows = nlohmann::json::array();
  for (const TransportEntry& entry : entries) {
    rows.push_back({{"transport", entry.name},
                    {"refusal", entry.refusal},
                    {"microseconds", times[entry.name]}});
  }
  fmt::print("{}\n", nlohmann::json{{"bytes", settings.sizes}, {"rows", rows}}.dump(1));
}

void print_table(const TransportsSettings& settings, const std::vector<TransportEntry>& entries,
                 Times& times) {
  std::vector<TableColumn> columns = {{"us of an all-reduce, KB", Align::right}};
  for (const TransportEntry& entry : entries) columns.push_back({entry.name, Align::right});
  Table table(columns);
  for (size_t i = 0; i < settings.sizes.size(); ++i) {
    std::vector<std::string> row = {fmt::format("{:.0f}", settings.sizes[i] / 1024.0)};
    for (const TransportEntry& entry : entries) {
      const bool ran = entry.refusal.empty();
      row.push_back(ran ? fmt::format("{:.2f}", times[entry.name][i]) : "refused");
    }
    table.add_row(row);
  }
  table.print();
  for (const TransportEntry& entry : entries) {
    if (!entry.refusal.empty()) fmt::print("{}: {}\n", entry.name, entry.refusal);
  }
}

void run_rank(const TransportsSettings& settings, int rank, const std::string& mailbox) {
  const int card = settings.devices[static_cast<size_t>(rank)];
  const std::unique_ptr<Device> device = open_device(fmt::format("cuda:{}", card));
  const std::unique_ptr<Stream> stream = device->new_stream();
  const std::unique_ptr<Communicator> host = join_mailbox(mailbox, rank, {});
  Times times;
  const auto time_all = [&](DeviceCommunicator& one) {
    std::vector<double>& mine = times[std::string(one.name())];
    for (const int64_t n_bytes : settings.sizes) {
      mine.push_back(time_all_reduce(one, *device, *stream, n_bytes));
    }
    return mine.front();
  };
  const std::vector<TransportEntry> entries =
      race_transports(card_transports(*host, *device), *host, *device, *stream, time_all);
  if (rank != 0) return;
  settings.json ? print_json(settings, entries, times) : print_table(settings, entries, times);
}

// Rank 1 is a child, made before anything of CUDA has begun.
int bench_transports(const TransportsSettings& settings) {
  if (settings.devices.size() != 2) {
    fail_with(ExitCode::usage, "--devices: a bench of transports has two ranks; name two cards");
  }
  const int file = create_mailbox_file();
  const std::string mailbox = fmt::format("/proc/{}/fd/{}", ::getpid(), file);
  const pid_t child = ::fork();
  if (child < 0) fail("cannot start rank 1");
  run_rank(settings, child == 0 ? 1 : 0, mailbox);
  if (child == 0) return 0;
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}

}  // namespace

void add_transports_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("transports", "All-reduce between two cards, each transport by size");
  const auto settings = std::make_shared<TransportsSettings>();
  command->add_option("--devices", settings->devices, "Cards of the two ranks, with a comma")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--sizes", settings->sizes, "Bytes of a message, with commas")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{16}, int64_t{1} << 30))
      ->capture_default_str();
  command->add_flag("--json", settings->json, "Print JSON instead of a table");
  command->callback([settings, &exit_code] { exit_code = bench_transports(*settings); });
}

}  // namespace lockstep
