// How fast sharding is, as a share of a plain copy of the same bytes: both in turn, in one run,
// because disks and neighbours change from minute to minute. Needs about three times the
// checkpoint's size in DIR.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/base/median.h"
#include "engine/base/seconds_since.h"
#include "engine/model/checkpoint_writer.h"
#include "engine/model/output_file.h"
#include "engine/model/shard_writer.h"
#include "engine/model/synth/synthetic.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// The same pieces, flush and rename as the shard writer, without cutting and digests.
double copy_seconds(const Checkpoint& source, const fs::path& dir) {
  constexpr size_t kPieceBytes = size_t{4} << 20;
  const auto start = Clock::now();
  for (const auto& file : source.files()) {
    OutputFile out(dir / fs::path(file->label()).filename());
    int64_t at = 0;
    for (const TensorInfo& tensor : file->tensors()) {
      for (size_t done = 0; done < tensor.bytes.size(); done += kPieceBytes) {
        const auto piece =
            tensor.bytes.subspan(done, std::min(kPieceBytes, tensor.bytes.size() - done));
        out.write_at(at, piece);
        at += static_cast<int64_t>(piece.size());
      }
      source.release(tensor);
    }
    out.commit(at);
  }
  return seconds_since(start);
}

double shard_seconds(const ModelConfig& config, const Checkpoint& source,
                     const CompanionFiles& companions, const fs::path& dir) {
  const auto start = Clock::now();
  write_shards(config, source, companions, 2, dir);
  return seconds_since(start);
}

int bench(const std::string& geometry, const std::string& format, const fs::path& dir, int rounds) {
  const SyntheticModel model = make_synthetic_model({geometry, format, 1});
  fs::create_directories(dir);
  if (!fs::exists(dir / "source" / "config.json")) {
    write_checkpoint(*model.checkpoint, dir / "source");
    write_companion_files({{"config.json", model.config_json}}, dir / "source");
  }
  const Checkpoint source(dir / "source");
  const CompanionFiles companions = read_companion_files(dir / "source");
  std::vector<double> copies;
  std::vector<double> shards;
  for (int round = 0; round < rounds; ++round) {
    fs::create_directories(dir / "copy");
    copies.push_back(copy_seconds(source, dir / "copy"));
    fs::remove_all(dir / "copy");
    shards.push_back(shard_seconds(model.config, source, companions, dir / "shards"));
    fs::remove_all(dir / "shards");
    fmt::print("round {}: copy {:.2f} s, shard {:.2f} s\n", round, copies.back(), shards.back());
  }
  const double gigabytes = static_cast<double>(source.n_bytes()) / 1e9;
  fmt::print(
      "{:.2f} GB: copy {:.2f} GB/s, shard {:.2f} GB/s of source: {:.0f} % of the copy's speed\n",
      gigabytes, gigabytes / median(copies), gigabytes / median(shards),
      100.0 * median(copies) / median(shards));
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("model_shard_speed", [&] {
    CLI::App app("Speed of sharding as a share of a plain copy");
    std::string geometry = "qwen3.8-27b-narrow";
    std::string format = "nvfp4-fp8";
    std::string dir;
    int rounds = 3;
    app.add_option("--geometry", geometry, "As for 'lockstep weights synth'");
    app.add_option("--format", format, "As for 'lockstep weights synth'");
    app.add_option("--dir", dir, "Folder on the disk to measure")->required();
    app.add_option("--rounds", rounds, "Pairs of runs")->check(CLI::Range(1, 100));
    if (const auto ended = lockstep::parse_command_line(app, argc, argv)) return *ended;
    return lockstep::bench(geometry, format, dir, rounds);
  });
}
