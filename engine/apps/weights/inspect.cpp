#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/apps/weights/commands.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/progress.h"
#include "engine/base/table.h"
#include "engine/model/inspect.h"
#include "engine/model/slow_formats.h"
#include "engine/model/synth/synthetic.h"

namespace lockstep {
namespace {

struct InspectFlags {
  std::string model;
  int n_ranks = 2;
  std::string card;
  bool json = false;
};

std::string bytes_text(int64_t n_bytes) {
  return human_bytes(static_cast<double>(n_bytes));
}

void print_text(const InspectReport& report, int n_ranks) {
  std::vector<TableColumn> columns = {
      {"class"}, {"format"}, {"count", Align::right}, {"size", Align::right}};
  for (int rank = 0; rank < n_ranks; ++rank) {
    columns.push_back({fmt::format("rank {}", rank), Align::right});
  }
  Table table(columns);
  std::vector<int64_t> totals(static_cast<size_t>(n_ranks));
  for (const InspectRow& row : report.rows) {
    std::vector<std::string> cells = {row.tensor_class, row.format, std::to_string(row.n_matrices),
                                      bytes_text(row.n_bytes)};
    for (size_t rank = 0; rank < totals.size(); ++rank) {
      cells.push_back(bytes_text(row.rank_bytes[rank]));
      totals[rank] += row.rank_bytes[rank];
    }
    table.add_row(cells);
  }
  std::vector<std::string> cells = {"all", "", "", bytes_text(report.n_bytes)};
  for (const int64_t total : totals) cells.push_back(bytes_text(total));
  table.add_row(cells);
  table.print();
  fmt::print("{} tensors, MTP {}, vision {}\n", report.n_tensors, report.has_mtp ? "yes" : "no",
             report.has_vision ? "yes" : "no");
  for (const std::string& oddity : report.oddities) {
    fmt::print("odd: {}\n", printable(oddity));
  }
}

void print_json(const InspectReport& report) {
  nlohmann::ordered_json json;
  json["n_tensors"] = report.n_tensors;
  json["n_bytes"] = report.n_bytes;
  json["has_mtp"] = report.has_mtp;
  json["has_vision"] = report.has_vision;
  for (const InspectRow& row : report.rows) {
    json["rows"].push_back({{"class", row.tensor_class},
                            {"format", row.format},
                            {"count", row.n_matrices},
                            {"n_bytes", row.n_bytes},
                            {"rank_bytes", row.rank_bytes}});
  }
  json["oddities"] = report.oddities;
  fmt::print("{}\n", json.dump(1));
}

InspectReport report_on(const InspectFlags& flags) {
  if (is_synthetic_spec(flags.model)) {
    const SyntheticModel model = make_synthetic_model(parse_synthetic_spec(flags.model));
    return inspect_checkpoint(model.config, *model.checkpoint, flags.n_ranks, model.config_json);
  }
  const std::filesystem::path dir(flags.model);
  const ModelConfig config = load_model_config(dir);
  return inspect_checkpoint(config, Checkpoint(dir), flags.n_ranks,
                            read_text_file(dir / "config.json"));
}

int inspect(const InspectFlags& flags) {
  InspectReport report = report_on(flags);
  note_slow_formats(flags.card.empty() ? installed_cards() : std::vector{flags.card}, report);
  if (flags.json) {
    print_json(report);
  } else {
    print_text(report, flags.n_ranks);
  }
  return 0;
}

}  // namespace

void add_inspect_command(CLI::App& app, CommandBody& run) {
  CLI::App* command =
      app.add_subcommand("inspect", "What is in a checkpoint and what is odd in it");
  auto flags = std::make_shared<InspectFlags>();
  command->add_option("--model", flags->model, "Folder with the checkpoint, or synth:GEOMETRY")
      ->required();
  command->add_option("--tp", flags->n_ranks, "Ranks to plan for")->check(CLI::Range(1, 2));
  command->add_option("--card", flags->card,
                      "Warn of formats that are slow on this card (default: the cards here)");
  command->add_flag("--json", flags->json, "Report as JSON");
  command->callback([flags, &run] { run = [flags] { return inspect(*flags); }; });
}

}  // namespace lockstep
