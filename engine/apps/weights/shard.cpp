#include <CLI/CLI.hpp>
#include <memory>

#include "engine/apps/weights/commands.h"
#include "engine/base/error.h"
#include "engine/base/progress.h"
#include "engine/model/shard_writer.h"

namespace lockstep {
namespace {

struct ShardFlags {
  std::string model;
  std::string out;
  int n_ranks = 2;
};

int shard(const ShardFlags& flags) {
  const ModelConfig config = load_model_config(flags.model);
  const Checkpoint source{std::filesystem::path(flags.model)};
  const ShardReport report =
      write_shards(config, source, read_companion_files(flags.model), flags.n_ranks, flags.out);
  fmt::print("{} tensors in {} shards, {}, source {}\n", report.n_tensors, flags.n_ranks,
             human_bytes(static_cast<double>(report.n_bytes)), report.source_digest);
  if (report.n_resumed != 0) {
    fmt::print("{} of them were there already and passed their digests\n", report.n_resumed);
  }
  return 0;
}

}  // namespace

void add_shard_command(CLI::App& app, CommandBody& run) {
  CLI::App* command = app.add_subcommand("shard", "Cut a checkpoint into one file a rank");
  auto flags = std::make_shared<ShardFlags>();
  command->add_option("--model", flags->model, "Folder with the checkpoint")->required();
  command->add_option("--tp", flags->n_ranks, "Number of ranks")->check(CLI::Range(1, 2));
  command->add_option("--out", flags->out, "Folder for the shards")->required();
  command->callback([flags, &run] { run = [flags] { return shard(*flags); }; });
}

}  // namespace lockstep
