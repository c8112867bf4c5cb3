#include <CLI/CLI.hpp>
#include <memory>

#include "engine/apps/weights/commands.h"
#include "engine/base/error.h"
#include "engine/base/table.h"
#include "engine/model/convert/convert.h"
#include "engine/model/gguf/gguf_export.h"
#include "engine/model/unused_layers.h"

namespace lockstep {
namespace {

struct ConvertFlags {
  std::string model;
  std::string to;
  std::string out;
  bool with_mtp = false;
};

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const ConvertTarget& target : convert_targets()) names.emplace_back(target.name);
  for (const std::string_view name : gguf_targets()) names.emplace_back(name);
  return names;
}

std::string percent(double share) {
  return fmt::format("{:.3f} %", 100.0 * share);
}

void print_report(const std::vector<ConvertError>& rows) {
  Table table({{"class"},
               {"format"},
               {"same bits", Align::right},
               {"rounded", Align::right},
               {"relative error", Align::right},
               {"worst", Align::right},
               {"worst matrix"}});
  for (const ConvertError& row : rows) {
    const bool any = row.n_encoded > 0;
    table.add_row({row.tensor_class, row.format, std::to_string(row.n_copied),
                   std::to_string(row.n_encoded), any ? percent(row.relative_error) : "",
                   any ? percent(row.worst) : "", any ? row.worst_matrix : ""});
  }
  table.print();
}

int convert(const ConvertFlags& flags) {
  const Checkpoint source{std::filesystem::path(flags.model)};
  const ModelConfig config = load_model_config(flags.model);
  refuse_unused_layers(config, source);
  const CompanionFiles companions = read_companion_files(flags.model);
  const ConvertTarget* target = find_convert_target(flags.to);
  if (target == nullptr) {
    const GgufReport report =
        export_gguf(config, source, companions, flags.to, flags.with_mtp, flags.out);
    fmt::print("{}: {} tensors\n", report.path.string(), report.n_tensors);
    print_report(report.errors);
    return 0;
  }
  if (flags.with_mtp) {
    fail_with(ExitCode::usage, "--mtp: only for gguf; other formats keep the MTP layer always");
  }
  print_report(convert_checkpoint(source, companions, *target, flags.out));
  return 0;
}

}  // namespace

void add_convert_command(CLI::App& app, CommandBody& run) {
  CLI::App* command = app.add_subcommand("convert", "Write a checkpoint in another format");
  auto flags = std::make_shared<ConvertFlags>();
  command->add_option("--model", flags->model, "Folder with the checkpoint")->required();
  command->add_option("--to", flags->to, "Format to write")
      ->required()
      ->check(CLI::IsMember(target_names()));
  command->add_option("--out", flags->out, "Folder for the result")->required();
  command->add_flag("--mtp", flags->with_mtp, "gguf: include the MTP layer");
  command->callback([flags, &run] { run = [flags] { return convert(*flags); }; });
}

}  // namespace lockstep
