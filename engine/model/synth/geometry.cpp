#include "engine/model/synth/geometry.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Published sizes of the 27B model; keys whose value is the family's default are left out.
Json config_27b() {
  Json text = {{"model_type", "qwen3_5_text"},
               {"vocab_size", 248320},
               {"hidden_size", 5120},
               {"intermediate_size", 17408},
               {"num_hidden_layers", 64},
               {"num_attention_heads", 24},
               {"num_key_value_heads", 4},
               {"head_dim", 256},
               {"linear_num_key_heads", 16},
               {"linear_num_value_heads", 48},
               {"linear_key_head_dim", 128},
               {"linear_value_head_dim", 128},
               {"linear_conv_kernel_dim", 4},
               {"full_attention_interval", 4},
               {"max_position_embeddings", 262144},
               {"rms_norm_eps", 1e-6},
               {"tie_word_embeddings", false},
               {"attn_output_gate", true},
               {"mtp_num_hidden_layers", 1},
               {"eos_token_id", 248044}};
  text["rope_parameters"] = {{"rope_type", "default"},
                             {"rope_theta", 1e7},
                             {"partial_rotary_factor", 0.25},
                             {"mrope_section", {11, 11, 10}},
                             {"mrope_interleaved", true}};
  const Json vision = {{"depth", 27},
                       {"hidden_size", 1152},
                       {"num_heads", 16},
                       {"intermediate_size", 4304},
                       {"patch_size", 16},
                       {"spatial_merge_size", 2},
                       {"temporal_patch_size", 2},
                       {"in_channels", 3},
                       {"out_hidden_size", 5120},
                       {"num_position_embeddings", 2304}};
  return {{"architectures", {"Qwen3_5ForConditionalGeneration"}},
          {"model_type", "qwen3_5"},
          {"image_token_id", 248056},
          {"video_token_id", 248057},
          {"vision_start_token_id", 248053},
          {"vision_end_token_id", 248054},
          {"tie_word_embeddings", false},
          {"dtype", "bfloat16"},
          {"text_config", text},
          {"vision_config", vision}};
}

// All layers and tensors of the 27B model with widths that a test can run.
Json config_narrow() {
  Json config = config_27b();
  Json& text = config["text_config"];
  text["vocab_size"] = 1024;
  text["hidden_size"] = 128;
  text["intermediate_size"] = 256;
  text["num_attention_heads"] = 4;
  text["num_key_value_heads"] = 2;
  text["linear_num_key_heads"] = 2;
  text["linear_num_value_heads"] = 4;
  text["eos_token_id"] = 1000;
  text["max_position_embeddings"] = 4096;
  Json& vision = config["vision_config"];
  vision["hidden_size"] = 64;
  vision["num_heads"] = 2;
  vision["intermediate_size"] = 96;
  vision["out_hidden_size"] = 128;
  vision["num_position_embeddings"] = 64;
  config["image_token_id"] = 1001;
  config["video_token_id"] = 1002;
  config["vision_start_token_id"] = 1003;
  config["vision_end_token_id"] = 1004;
  return config;
}

class TensorList {
 public:
  explicit TensorList(const ModelConfig& config) : config_(config) {}

  std::vector<ModelTensor> all() {
    const int64_t hidden = config_.hidden_size;
    const std::string text = "model.language_model.";
    matrix(text + "embed_tokens", config_.vocab_size, hidden);
    vector(text + "norm.weight", {hidden});
    if (!config_.tie_word_embeddings) matrix("lm_head", config_.vocab_size, hidden);
    for (int i = 0; i < config_.n_layers(); ++i) {
      layer(text + "layers." + std::to_string(i), config_.layers[static_cast<size_t>(i)]);
    }
    if (config_.n_mtp_layers > 0) mtp();
    if (config_.vision) vision(*config_.vision);
    return std::move(tensors_);
  }

 private:
  void matrix(const std::string& base, int64_t n_rows, int64_t n_cols) {
    tensors_.push_back({base, {n_rows, n_cols}, true});
  }
  void vector(const std::string& name, std::vector<int64_t> shape) {
    tensors_.push_back({name, std::move(shape), false});
  }

  void layer(const std::string& prefix, LayerKind kind) {
    const int64_t hidden = config_.hidden_size;
    vector(prefix + ".input_layernorm.weight", {hidden});
    vector(prefix + ".post_attention_layernorm.weight", {hidden});
    matrix(prefix + ".mlp.gate_proj", config_.intermediate_size, hidden);
    matrix(prefix + ".mlp.up_proj", config_.intermediate_size, hidden);
    matrix(prefix + ".mlp.down_proj", hidden, config_.intermediate_size);
    if (kind == LayerKind::full_attention) {
      attention(prefix + ".self_attn");
    } else {
      gdn(prefix + ".linear_attn");
    }
  }

  void attention(const std::string& prefix) {
    const int64_t hidden = config_.hidden_size;
    const int64_t q = int64_t{config_.n_heads} * config_.head_dim;
    const int64_t kv = int64_t{config_.n_kv_heads} * config_.head_dim;
    matrix(prefix + ".q_proj", 2 * q, hidden);
    matrix(prefix + ".k_proj", kv, hidden);
    matrix(prefix + ".v_proj", kv, hidden);
    matrix(prefix + ".o_proj", hidden, q);
    vector(prefix + ".q_norm.weight", {config_.head_dim});
    vector(prefix + ".k_norm.weight", {config_.head_dim});
  }

  void gdn(const std::string& prefix) {
    const int64_t hidden = config_.hidden_size;
    const GdnConfig& gdn = config_.gdn;
    matrix(prefix + ".in_proj_qkv", gdn.conv_channels(), hidden);
    matrix(prefix + ".in_proj_z", gdn.v_width(), hidden);
    matrix(prefix + ".in_proj_b", gdn.n_v_heads, hidden);
    matrix(prefix + ".in_proj_a", gdn.n_v_heads, hidden);
    matrix(prefix + ".out_proj", hidden, gdn.v_width());
    vector(prefix + ".conv1d.weight", {gdn.conv_channels(), 1, kConvWidth});
    vector(prefix + ".dt_bias", {gdn.n_v_heads});
    vector(prefix + ".A_log", {gdn.n_v_heads});
    vector(prefix + ".norm.weight", {gdn.v_head_dim});
  }

  void mtp() {
    const int64_t hidden = config_.hidden_size;
    matrix("mtp.fc", hidden, 2 * hidden);
    vector("mtp.pre_fc_norm_embedding.weight", {hidden});
    vector("mtp.pre_fc_norm_hidden.weight", {hidden});
    vector("mtp.norm.weight", {hidden});
    layer("mtp.layers.0", LayerKind::full_attention);
  }

  void with_bias(const std::string& base, int64_t n_rows, int64_t n_cols) {
    matrix(base, n_rows, n_cols);
    vector(base + ".bias", {n_rows});
  }

  void vision(const VisionConfig& vision) {
    const std::string prefix = "model.visual.";
    const int64_t width = vision.hidden_size;
    const int64_t merged = width * vision.spatial_merge_size * vision.spatial_merge_size;
    vector(prefix + "patch_embed.proj.weight",
           {width, vision.in_channels, vision.temporal_patch_size, vision.patch_size,
            vision.patch_size});
    vector(prefix + "patch_embed.proj.bias", {width});
    matrix(prefix + "pos_embed", vision.n_position_embeddings, width);
    for (int i = 0; i < vision.depth; ++i) {
      const std::string block = prefix + "blocks." + std::to_string(i) + ".";
      for (const char* norm : {"norm1", "norm2"}) {
        vector(block + norm + ".weight", {width});
        vector(block + norm + ".bias", {width});
      }
      with_bias(block + "attn.qkv", 3 * width, width);
      with_bias(block + "attn.proj", width, width);
      with_bias(block + "mlp.linear_fc1", vision.intermediate_size, width);
      with_bias(block + "mlp.linear_fc2", width, vision.intermediate_size);
    }
    vector(prefix + "merger.norm.weight", {width});
    vector(prefix + "merger.norm.bias", {width});
    with_bias(prefix + "merger.linear_fc1", merged, merged);
    with_bias(prefix + "merger.linear_fc2", vision.out_hidden_size, merged);
  }

  const ModelConfig& config_;
  std::vector<ModelTensor> tensors_;
};

}  // namespace

std::string geometry_config(const std::string& geometry) {
  if (geometry == "qwen3.8-27b") return config_27b().dump(2) + "\n";
  if (geometry == "qwen3.8-27b-narrow") return config_narrow().dump(2) + "\n";
  if (std::filesystem::is_regular_file(geometry)) return read_text_file(geometry);
  fail("geometry {}: is neither qwen3.8-27b, qwen3.8-27b-narrow nor a config.json", geometry);
}

std::vector<ModelTensor> model_tensors(const ModelConfig& config) {
  return TensorList(config).all();
}

}  // namespace lockstep
