#include <CLI/CLI.hpp>
#include <memory>

#include "engine/apps/weights/commands.h"
#include "engine/base/error.h"
#include "engine/base/progress.h"
#include "engine/model/checkpoint_writer.h"
#include "engine/model/shard_writer.h"
#include "engine/model/synth/synthetic.h"

namespace lockstep {
namespace {

struct SynthFlags {
  SyntheticSpec spec;
  std::string out;
  int n_ranks = 0;  // 0: a whole checkpoint
};

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const ConvertTarget& target : convert_targets()) names.emplace_back(target.name);
  return names;
}

int synth(const SynthFlags& flags) {
  const SyntheticModel model = make_synthetic_model(flags.spec);
  const CompanionFiles companions = {{"config.json", model.config_json}};
  if (flags.n_ranks > 0) {
    const ShardReport report =
        write_shards(model.config, *model.checkpoint, companions, flags.n_ranks, flags.out);
    fmt::print("{} tensors in {} shards, {}, source {}\n", report.n_tensors, flags.n_ranks,
               human_bytes(static_cast<double>(report.n_bytes)), report.source_digest);
    return 0;
  }
  write_checkpoint(*model.checkpoint, flags.out);
  write_companion_files(companions, flags.out);
  fmt::print("{} tensors, {}\n", model.checkpoint->tensors().size(),
             human_bytes(static_cast<double>(model.checkpoint->n_bytes())));
  return 0;
}

}  // namespace

void add_synth_command(CLI::App& app, CommandBody& run) {
  CLI::App* command =
      app.add_subcommand("synth", "Make a checkpoint of random weights, for tests and benchmarks");
  auto flags = std::make_shared<SynthFlags>();
  command
      ->add_option("--geometry", flags->spec.geometry,
                   "qwen3.8-27b, qwen3.8-27b-narrow, or a config.json")
      ->required();
  command->add_option("--format", flags->spec.format, "Format of the matrices")
      ->required()
      ->check(CLI::IsMember(format_names()));
  command->add_option("--seed", flags->spec.seed, "Other seed, other weights")->required();
  command->add_option("--tp", flags->n_ranks, "Write shards for this many ranks at once")
      ->check(CLI::Range(1, 2));
  command->add_option("--out", flags->out, "Folder for the checkpoint or the shards")->required();
  command->callback([flags, &run] { run = [flags] { return synth(*flags); }; });
}

}  // namespace lockstep
