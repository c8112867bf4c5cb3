#include "engine/model/synth/synthetic.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/philox.h"
#include "engine/model/convert/storage_formats.h"
#include "engine/model/shard_spans.h"
#include "engine/model/synth/geometry.h"
#include "engine/model/synth/tensor_fill.h"

namespace lockstep {
namespace {

constexpr const char* kPrefix = "synth:";
constexpr int64_t kBlockBytes = 16;   // of one Philox call
constexpr int kGeneratorVersion = 1;  // part of the digest: other numbers, other version

class SyntheticGenerator : public TensorGenerator {
 public:
  explicit SyntheticGenerator(uint64_t seed)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {}

  void add(const std::string& name, const TensorFill& fill) {
    fills_.emplace(name, Entry{fill, digest64(std::as_bytes(std::span(name.data(), name.size())))});
  }

  void fill(const TensorInfo& tensor, int64_t offset, std::span<std::byte> out) const override {
    const Entry& entry = fills_.at(tensor.name);
    // Whole blocks around the range: elements never cross a block.
    const int64_t begin = offset / kBlockBytes * kBlockBytes;
    const int64_t end = offset + static_cast<int64_t>(out.size());
    constexpr int64_t kPiece = int64_t{64} << 10;
    std::vector<std::byte> piece;
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t stop =
          std::min(at + kPiece, (end + kBlockBytes - 1) / kBlockBytes * kBlockBytes);
      piece.resize(static_cast<size_t>(stop - at));
      random_blocks(entry, at / kBlockBytes, piece);
      apply_fill(entry.fill, at / dtype_bytes(tensor.dtype), piece);
      const int64_t from = std::max(at, offset);
      const int64_t n = std::min(stop, end) - from;
      std::memcpy(out.data() + (from - offset), piece.data() + (from - at), static_cast<size_t>(n));
    }
  }

 private:
  struct Entry {
    TensorFill fill;
    uint64_t stream;
  };

  void random_blocks(const Entry& entry, int64_t first, std::span<std::byte> out) const {
    if (entry.fill.kind == TensorFill::Kind::pattern) return;
    auto block = static_cast<uint64_t>(first);
    for (size_t at = 0; at < out.size(); at += kBlockBytes, ++block) {
      const PhiloxCounter bits = philox4x32(
          {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
           static_cast<uint32_t>(entry.stream), static_cast<uint32_t>(entry.stream >> 32)},
          key_);
      std::memcpy(out.data() + at, bits.data(), kBlockBytes);
    }
  }

  const PhiloxKey key_;
  std::unordered_map<std::string, Entry> fills_;
};

bool ends_with_any(const std::string& name, std::initializer_list<const char*> ends) {
  for (const char* end : ends) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

float matrix_deviation(const ModelConfig& config, const ModelTensor& tensor) {
  const auto n_cols = static_cast<float>(tensor.shape[1]);
  if (tensor.name == "lm_head") return 3.0f / std::sqrt(n_cols);  // logits of a few units
  if (ends_with_any(tensor.name, {"embed_tokens", "pos_embed"})) return 0.05f;
  const bool to_residual = ends_with_any(
      tensor.name, {".o_proj", ".out_proj", ".down_proj", ".attn.proj", ".mlp.linear_fc2"});
  const float depth = to_residual ? std::sqrt(2.0f * static_cast<float>(config.n_layers())) : 1.0f;
  return 1.0f / std::sqrt(n_cols) / depth;
}

TensorFill small_fill(const ModelTensor& tensor) {
  const std::string& name = tensor.name;
  if (name.ends_with(".A_log")) return uniform_fill(DType::BF16, -1.0f, 2.0f);
  if (name.ends_with(".dt_bias")) return uniform_fill(DType::BF16, -1.5f, 1.5f);
  if (name.ends_with(".conv1d.weight")) return uniform_fill(DType::BF16, 0.0f, 0.5f);
  if (name.ends_with(".patch_embed.proj.weight")) {
    int64_t n_inputs = 1;
    for (size_t i = 1; i < tensor.shape.size(); ++i) n_inputs *= tensor.shape[i];
    return uniform_fill(DType::BF16, 0.0f, std::sqrt(3.0f / static_cast<float>(n_inputs)));
  }
  if (name.ends_with(".bias")) return uniform_fill(DType::BF16, 0.0f, 0.02f);
  // Norms that multiply by w sit around 1, those that multiply by 1 + w around 0.
  const bool plain_norm =
      name.ends_with(".linear_attn.norm.weight") || name.rfind("model.visual.", 0) == 0;
  return uniform_fill(DType::BF16, plain_norm ? 1.0f : 0.0f, 0.1f);
}

uint64_t parse_seed(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail_with(ExitCode::usage, "seed '{}': must be an integer from 0 to 2^64 - 1", text);
  }
  return seed;
}

class LocalGenerator : public TensorGenerator {
 public:
  LocalGenerator(std::shared_ptr<const Checkpoint> whole, ShardPlan plan, int rank)
      : whole_(std::move(whole)), rank_(rank) {
    for (ShardRow& row : plan) rows_.emplace(row.name, std::move(row));
  }

  void fill(const TensorInfo& tensor, int64_t offset, std::span<std::byte> out) const override {
    read_local(*whole_, rows_.at(tensor.name), rank_, offset, out);
  }

 private:
  std::shared_ptr<const Checkpoint> whole_;
  const int rank_;
  std::unordered_map<std::string, ShardRow> rows_;
};

}  // namespace

bool is_synthetic_spec(const std::string& model) {
  return model.rfind(kPrefix, 0) == 0;
}

SyntheticSpec parse_synthetic_spec(const std::string& model) {
  LOCKSTEP_CHECK(is_synthetic_spec(model));
  std::vector<std::string> fields;
  std::string rest = model.substr(std::string(kPrefix).size());
  for (size_t colon = rest.find(':'); colon != std::string::npos; colon = rest.find(':')) {
    fields.push_back(rest.substr(0, colon));
    rest.erase(0, colon + 1);
  }
  fields.push_back(rest);
  if (fields.size() > 3 || fields[0].empty()) {
    fail_with(ExitCode::usage, "--model {}: must be synth:GEOMETRY[:FORMAT[:SEED]]", model);
  }
  SyntheticSpec spec;
  spec.geometry = fields[0];
  if (fields.size() > 1) spec.format = fields[1];
  if (fields.size() > 2) spec.seed = parse_seed(fields[2]);
  return spec;
}

SyntheticModel make_synthetic_model(const SyntheticSpec& spec) {
  const ConvertTarget* target = find_convert_target(spec.format);
  if (target == nullptr) {
    fail_with(ExitCode::usage, "format {}: unknown; see 'lockstep weights synth --help'",
              spec.format);
  }
  const std::string geometry = geometry_config(spec.geometry);
  SyntheticModel model;
  model.config = parse_model_config(geometry, "", spec.geometry);
  auto generator = std::make_shared<SyntheticGenerator>(spec.seed);
  std::vector<TensorInfo> index;
  std::vector<std::string> matrices;
  for (const ModelTensor& tensor : model_tensors(model.config)) {
    if (!tensor.is_matrix) {
      index.push_back({tensor.name, DType::BF16, tensor.shape, {}});
      generator->add(tensor.name, small_fill(tensor));
      continue;
    }
    const int64_t n_rows = tensor.shape[0];
    const int64_t n_cols = tensor.shape[1];
    const StorageFormat& format = storage_format(target_format(*target, tensor.name));
    check_storage_shape(format, tensor.name, n_rows, n_cols);
    const float deviation = matrix_deviation(model.config, tensor);
    for (const PartSpec& part : format.parts(format, n_rows, n_cols)) {
      const std::string name = tensor.name + "." + part.suffix;
      index.push_back({name, part.dtype, part.shape, {}});
      generator->add(name, matrix_fill(format, part, n_rows, n_cols, deviation));
    }
    matrices.push_back(tensor.name);
  }
  model.config_json = converted_config(geometry, *target, matrices);
  Digest128 digest;
  digest.update(fmt::format("synthetic {} {} {}\n", kGeneratorVersion, spec.format, spec.seed));
  digest.update(model.config_json);
  model.digest = digest.hex();
  model.checkpoint = std::make_shared<Checkpoint>(
      fmt::format("synth:{}:{}:{}", spec.geometry, spec.format, spec.seed), std::move(index),
      std::move(generator));
  return model;
}

std::unique_ptr<Checkpoint> synthetic_rank_part(const SyntheticModel& model, int n_ranks,
                                                int rank) {
  ShardPlan plan = make_shard_plan(model.config, *model.checkpoint, n_ranks);
  std::vector<TensorInfo> index;
  for (const ShardRow& row : plan) {
    index.push_back({row.name, row.source->dtype, row.local_shape(rank), {}});
  }
  return std::make_unique<Checkpoint>(
      model.checkpoint->label(), std::move(index),
      std::make_shared<LocalGenerator>(model.checkpoint, std::move(plan), rank));
}

}  // namespace lockstep
