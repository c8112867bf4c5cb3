// The model's dimensions, read from config.json and checked. Names of fields follow the design's
// vocabulary; sizes are totals of the whole model, never a rank's share (see shard_plan.h).
// Source of keys and defaults: the qwen3_5 configuration of Hugging Face transformers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

enum class LayerKind : uint8_t { gated_delta_net, full_attention };

struct GdnConfig {
  int n_k_heads = 0;
  int n_v_heads = 0;
  int k_head_dim = 0;
  int v_head_dim = 0;

  int k_width() const { return n_k_heads * k_head_dim; }
  int v_width() const { return n_v_heads * v_head_dim; }
  int conv_channels() const { return 2 * k_width() + v_width(); }  // [Q | K | V]
};

inline constexpr int kConvWidth =
    4;  // taps of the causal convolution; the only width the family has

struct VisionConfig {
  int depth = 0;
  int hidden_size = 0;
  int n_heads = 0;
  int intermediate_size = 0;
  int patch_size = 0;
  int temporal_patch_size = 0;
  int spatial_merge_size = 0;
  int in_channels = 0;
  int out_hidden_size = 0;
  int n_position_embeddings = 0;
};

struct ModelConfig {
  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int rotary_dim = 0;
  double rope_theta = 0.0;
  float rms_norm_eps = 0.0f;
  int64_t max_positions = 0;
  bool tie_word_embeddings = false;
  int n_mtp_layers = 0;
  GdnConfig gdn;
  std::vector<LayerKind> layers;
  std::optional<VisionConfig> vision;
  std::optional<int32_t> image_token_id;
  std::optional<int32_t> video_token_id;
  std::optional<int32_t> vision_start_token_id;
  std::optional<int32_t> vision_end_token_id;
  std::vector<int32_t> eos_token_ids;  // generation_config.json, else config.json
  std::string quant_method;            // what quantization_config claims; tensors decide

  int n_layers() const { return static_cast<int>(layers.size()); }
  int n_kv_layers() const;  // full-attention layers, MTP not counted
};

// Reads DIR/config.json and DIR/generation_config.json (optional). Throws Error that names the key.
ModelConfig load_model_config(const std::filesystem::path& dir);

// The same from texts; `label` stands for the path in messages.
ModelConfig parse_model_config(const std::string& config_json, const std::string& generation_json,
                               const std::string& label);

}  // namespace lockstep
