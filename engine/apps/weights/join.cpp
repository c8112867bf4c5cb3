#include <CLI/CLI.hpp>
#include <memory>

#include "engine/apps/weights/commands.h"
#include "engine/base/error.h"
#include "engine/base/progress.h"
#include "engine/model/shard_set.h"

namespace lockstep {
namespace {

struct JoinFlags {
  std::string shards;
  std::string out;
};

int join(const JoinFlags& flags) {
  const JoinReport report = join_shards(flags.shards, flags.out);
  fmt::print("{} tensors, {}, digest {} as its source had\n", report.n_tensors,
             human_bytes(static_cast<double>(report.n_bytes)), report.digest);
  return 0;
}

}  // namespace

void add_join_command(CLI::App& app, CommandBody& run) {
  CLI::App* command = app.add_subcommand("join", "Make the checkpoint again from its shards");
  auto flags = std::make_shared<JoinFlags>();
  command->add_option("--shards", flags->shards, "Folder with all shards")->required();
  command->add_option("--out", flags->out, "Folder for the checkpoint")->required();
  command->callback([flags, &run] { run = [flags] { return join(*flags); }; });
}

}  // namespace lockstep
