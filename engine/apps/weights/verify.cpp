#include <CLI/CLI.hpp>
#include <memory>

#include "engine/apps/weights/commands.h"
#include "engine/base/error.h"
#include "engine/base/progress.h"
#include "engine/model/digest_file.h"
#include "engine/model/shard_set.h"

namespace lockstep {
namespace {

struct VerifyFlags {
  std::string model;
  std::string shards;
  std::string digests;
  std::string write_digests;
};

void verify_shards_of(const VerifyFlags& flags, const Checkpoint& source) {
  const ModelConfig config = load_model_config(flags.model);
  const ShardSet shards{std::filesystem::path(flags.shards)};
  const VerifyReport report = verify_shards(config, source, shards);
  fmt::print("{} tensors in {} blocks on {} ranks, {}: every bit as in the source\n",
             report.n_tensors, report.n_blocks, shards.n_ranks(),
             human_bytes(static_cast<double>(report.n_bytes)));
}

int verify(const VerifyFlags& flags) {
  if (flags.shards.empty() && flags.digests.empty() && flags.write_digests.empty()) {
    fail_with(ExitCode::usage,
              "verify: nothing to check: give --shards, --digests or --write-digests");
  }
  const Checkpoint source{std::filesystem::path(flags.model)};
  if (!flags.shards.empty()) verify_shards_of(flags, source);
  if (!flags.digests.empty()) {
    const DigestFile expected = read_digest_file(flags.digests);
    check_digests(source, expected);
    fmt::print("{} tensors have the digests of {}\n", expected.tensors.size(), flags.digests);
  }
  if (!flags.write_digests.empty()) {
    write_digest_file(compute_digests(source), flags.write_digests);
    fmt::print("{}: {} digests\n", flags.write_digests, source.tensors().size());
  }
  return 0;
}

}  // namespace

void add_verify_command(CLI::App& app, CommandBody& run) {
  CLI::App* command =
      app.add_subcommand("verify", "Prove that shards, or a copy elsewhere, are the checkpoint");
  auto flags = std::make_shared<VerifyFlags>();
  command->add_option("--model", flags->model, "Folder with the checkpoint")->required();
  command->add_option("--shards", flags->shards, "Folder with its shards: compares every bit");
  command->add_option("--digests", flags->digests,
                      "File that --write-digests made of another copy: compares digests");
  command->add_option("--write-digests", flags->write_digests,
                      "Write the digest of every tensor to this file");
  command->callback([flags, &run] { run = [flags] { return verify(*flags); }; });
}

}  // namespace lockstep
