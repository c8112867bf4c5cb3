#include "engine/rank/vision_weights.h"

#include <cmath>

#include "engine/base/error.h"

namespace lockstep {
namespace {

const std::string kPrefix = "model.visual.";

class VisionLoader {
 public:
  VisionLoader(const ModelConfig& config, const Checkpoint& checkpoint)
      : config_(config), vision_(*config.vision), checkpoint_(checkpoint) {}

  std::unique_ptr<VisionWeights> load() {
    check_sizes();
    weights_ = std::make_unique<VisionWeights>();
    const int64_t hidden = vision_.hidden_size;
    const int64_t merged = hidden * vision_.spatial_merge_size * vision_.spatial_merge_size;
    weights_->patch_embed = patch_embed();
    weights_->positions = floats("pos_embed.weight", {vision_.n_position_embeddings, hidden});
    for (int i = 0; i < vision_.depth; ++i) {
      weights_->blocks.push_back(block("blocks." + std::to_string(i) + "."));
    }
    weights_->merger_norm = norm("merger.norm");
    weights_->merger_fc1 = linear("merger.linear_fc1", merged, merged);
    weights_->merger_fc2 = linear("merger.linear_fc2", config_.hidden_size, merged);
    return std::move(weights_);
  }

 private:
  void check_sizes() const {
    const auto side = static_cast<int>(std::lround(std::sqrt(vision_.n_position_embeddings)));
    const auto require = [](bool condition, const char* what) {
      if (!condition) fail("config.json: vision_config: {}", what);
    };
    require(vision_.out_hidden_size == config_.hidden_size,
            "out_hidden_size must be the text model's hidden_size");
    require(vision_.in_channels == 3, "in_channels must be 3");
    require(vision_.hidden_size % 16 == 0, "hidden_size must be a multiple of 16");
    require(vision_.hidden_size % (4 * vision_.n_heads) == 0,
            "hidden_size must be num_heads heads of a multiple of 4");
    require(side * side == vision_.n_position_embeddings,
            "num_position_embeddings must be a square number");
    require(config_.image_token_id.has_value(), "needs image_token_id beside it");
  }

  VisionBlockWeights block(const std::string& name) {
    const int64_t hidden = vision_.hidden_size;
    VisionBlockWeights block;
    block.norm1 = norm(name + "norm1");
    block.norm2 = norm(name + "norm2");
    block.qkv = linear(name + "attn.qkv", 3 * hidden, hidden);
    block.proj = linear(name + "attn.proj", hidden, hidden);
    block.fc1 = linear(name + "mlp.linear_fc1", vision_.intermediate_size, hidden);
    block.fc2 = linear(name + "mlp.linear_fc2", hidden, vision_.intermediate_size);
    return block;
  }

  std::vector<float> floats(const std::string& name, const std::vector<int64_t>& shape) const {
    return checkpoint_.floats(kPrefix + name, shape);
  }

  LayerNormWeights norm(const std::string& name) const {
    return {floats(name + ".weight", {vision_.hidden_size}),
            floats(name + ".bias", {vision_.hidden_size})};
  }

  BiasedMatrix linear(const std::string& name, int64_t n_rows, int64_t n_cols) {
    StoredMatrix stored = checkpoint_.matrix(kPrefix + name, n_rows, n_cols);
    for (auto& owner : stored.keep_alive) weights_->keep_alive.push_back(std::move(owner));
    return {stored.view, floats(name + ".bias", {n_rows})};
  }

  // The convolution over whole patches is a product; its five dimensions lie as one row.
  BiasedMatrix patch_embed() {
    const int64_t hidden = vision_.hidden_size;
    const int64_t patch = vision_.patch_size;
    const int64_t time = vision_.temporal_patch_size;
    auto values = std::make_shared<std::vector<float>>(
        floats("patch_embed.proj.weight", {hidden, vision_.in_channels, time, patch, patch}));
    BiasedMatrix result;
    result.weight.codec = Codec::f32;
    result.weight.n_rows = hidden;
    result.weight.n_cols = vision_.in_channels * time * patch * patch;
    result.weight.codes = reinterpret_cast<const std::byte*>(values->data());
    result.weight.row_bytes = codec_row_bytes(Codec::f32, result.weight.n_cols);
    result.bias = floats("patch_embed.proj.bias", {hidden});
    weights_->keep_alive.push_back(std::move(values));
    return result;
  }

  const ModelConfig& config_;
  const VisionConfig& vision_;
  const Checkpoint& checkpoint_;
  std::unique_ptr<VisionWeights> weights_;
};

}  // namespace

std::unique_ptr<VisionWeights> load_vision_weights(const ModelConfig& config,
                                                   const Checkpoint& checkpoint) {
  if (!config.vision || checkpoint.find(kPrefix + "patch_embed.proj.weight") == nullptr) {
    return nullptr;
  }
  return VisionLoader(config, checkpoint).load();
}

}  // namespace lockstep
