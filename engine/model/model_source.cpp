#include "engine/model/model_source.h"

#include "engine/base/error.h"
#include "engine/model/checkpoint_digest.h"
#include "engine/model/shard_file.h"
#include "engine/model/synth/synthetic.h"
#include "engine/model/unused_layers.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool has_tensors(const fs::path& dir) {
  if (!fs::is_directory(dir)) return false;
  if (fs::exists(dir / "model.safetensors.index.json")) return true;
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() == ".safetensors" && name.rfind("shard-", 0) != 0) return true;
  }
  return false;
}

void check_same_source(const std::string& model, const std::string& shards,
                       const ShardIdentity& identity) {
  const std::string fingerprint = checkpoint_fingerprint(Checkpoint(fs::path(model)));
  if (fingerprint != identity.source_fingerprint) {
    fail("--shards {}: made from another checkpoint than --model {}: run 'lockstep weights shard'",
         shards, model);
  }
}

ModelSource open_synthetic(const std::string& model, const std::string& shards, int n_ranks,
                           int rank) {
  if (!shards.empty()) {
    fail_with(ExitCode::usage, "--shards {}: --model {} makes its own parts", shards, model);
  }
  const SyntheticModel made = make_synthetic_model(parse_synthetic_spec(model));
  ModelSource source;
  source.config = made.config;
  source.source_digest = made.digest;
  source.checkpoint = synthetic_rank_part(made, n_ranks, rank);
  source.sharded = true;
  return source;
}

}  // namespace

ModelSource open_model_source(const std::string& model, const std::string& shards, int n_ranks,
                              int rank) {
  if (is_synthetic_spec(model)) return open_synthetic(model, shards, n_ranks, rank);
  ModelSource source;
  source.config = load_model_config(model);
  if (shards.empty()) {
    source.checkpoint = std::make_unique<Checkpoint>(fs::path(model));
    refuse_unused_layers(source.config, *source.checkpoint);
    return source;
  }
  const auto shard = open_shard(shards, rank, n_ranks);
  if (has_tensors(model)) check_same_source(model, shards, shard->identity());
  source.config = load_model_config(shards);
  source.source_digest = shard->identity().source_digest;
  source.checkpoint = shard->take_checkpoint();
  refuse_unused_layers(source.config, *source.checkpoint);
  source.sharded = true;
  return source;
}

}  // namespace lockstep
