#include "engine/model/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

Json parse_object(const std::string& text, const std::string& label) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) fail("{}: is not valid JSON", label);
  if (!json.is_object()) fail("{}: is not a JSON object", label);
  return json;
}

// Typed access that names the key and file in every complaint.
class Section {
 public:
  Section(const Json& json, std::string label) : json_(json), label_(std::move(label)) {}

  const Json* get(const char* key) const {
    const auto at = json_.find(key);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }

  int64_t integer(const char* key, int64_t low, int64_t high) const {
    const Json* value = get(key);
    if (value == nullptr) fail("{}: {} is missing and has no default", label_, key);
    return checked(*value, key, low, high);
  }

  int64_t integer_or(const char* key, int64_t fallback, int64_t low, int64_t high) const {
    const Json* value = get(key);
    return value == nullptr ? fallback : checked(*value, key, low, high);
  }

  int dim(const char* key) const { return static_cast<int>(integer(key, 1, 1 << 24)); }

  double number_or(const char* key, double fallback) const {
    const Json* value = get(key);
    if (value == nullptr) return fallback;
    if (!value->is_number()) fail("{}: {} must be a number", label_, key);
    return value->get<double>();
  }

  bool flag_or(const char* key, bool fallback) const {
    const Json* value = get(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) fail("{}: {} must be true or false", label_, key);
    return value->get<bool>();
  }

  std::string text_or(const char* key, const std::string& fallback) const {
    const Json* value = get(key);
    if (value == nullptr) return fallback;
    if (!value->is_string()) fail("{}: {} must be a string", label_, key);
    return value->get<std::string>();
  }

  // An object, or an empty one when absent.
  Section object_or_empty(const char* key) const {
    static const Json empty = Json::object();
    const Json* value = get(key);
    if (value == nullptr) return {empty, label_ + ": " + key};
    if (!value->is_object()) fail("{}: {} must be an object", label_, key);
    return {*value, label_ + ": " + key};
  }

  const std::string& label() const { return label_; }

 private:
  int64_t checked(const Json& value, const char* key, int64_t low, int64_t high) const {
    if (!value.is_number_integer()) fail("{}: {} must be an integer", label_, key);
    const bool huge = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{1} << 62;
    const int64_t number = huge ? high + 1 : value.get<int64_t>();
    if (number < low || number > high) {
      fail("{}: {} is {}, must lie in [{}, {}]", label_, key, value.dump(), low, high);
    }
    return number;
  }

  const Json& json_;
  std::string label_;
};

void require(bool condition, const Section& section, const std::string& what) {
  if (!condition) fail("{}: {}", section.label(), what);
}

std::vector<LayerKind> parse_layers(const Section& text) {
  const auto n_layers = static_cast<size_t>(text.integer("num_hidden_layers", 1, 4096));
  std::vector<LayerKind> layers(n_layers);
  if (const Json* types = text.get("layer_types")) {
    require(types->is_array() && types->size() == n_layers, text,
            "layer_types must list num_hidden_layers strings");
    for (size_t i = 0; i < n_layers; ++i) {
      const bool linear = (*types)[i] == "linear_attention";
      require(linear || (*types)[i] == "full_attention", text,
              fmt::format("layer_types[{}] is {}, must be linear_attention or full_attention", i,
                          (*types)[i].dump()));
      layers[i] = linear ? LayerKind::gated_delta_net : LayerKind::full_attention;
    }
    return layers;
  }
  const auto interval = static_cast<size_t>(text.integer("full_attention_interval", 1, 4096));
  for (size_t i = 0; i < n_layers; ++i) {
    layers[i] = (i + 1) % interval == 0 ? LayerKind::full_attention : LayerKind::gated_delta_net;
  }
  return layers;
}

void parse_rope(const Section& text, ModelConfig& config) {
  const Section rope = text.object_or_empty("rope_parameters");
  // Some exports flatten these keys into text_config.
  const auto number = [&](const char* key, double fallback) {
    return rope.number_or(key, text.number_or(key, fallback));
  };
  config.rope_theta = number("rope_theta", 10000.0);
  require(config.rope_theta > 1.0 && config.rope_theta < 1e12, rope, "rope_theta is out of range");
  const double factor = number("partial_rotary_factor", 1.0);
  require(factor > 0.0 && factor <= 1.0, rope, "partial_rotary_factor must lie in (0, 1]");
  config.rotary_dim = static_cast<int>(config.head_dim * factor);
  require(config.rotary_dim >= 2 && config.rotary_dim % 2 == 0, rope,
          "partial_rotary_factor gives an odd rotary width");
  const std::string type = rope.text_or("rope_type", "default");
  require(type == "default", rope,
          "rope_type " + type + " is not supported: use the default and at most 262144 positions");
  if (const Json* section = rope.get("mrope_section")) {
    // i mod 3 picks the axis of pair i only for sections that interleave evenly.
    const int half = config.rotary_dim / 2;
    const Json expected = {(half + 2) / 3, (half + 1) / 3, half / 3};
    require(*section == expected && rope.flag_or("mrope_interleaved", false), rope,
            "mrope_section must be " + expected.dump() + " with mrope_interleaved true");
  }
}

void parse_text(const Section& text, ModelConfig& config) {
  config.vocab_size = text.dim("vocab_size");
  config.hidden_size = text.dim("hidden_size");
  config.intermediate_size = text.dim("intermediate_size");
  config.n_heads = static_cast<int>(text.integer("num_attention_heads", 1, 4096));
  config.n_kv_heads = static_cast<int>(text.integer("num_key_value_heads", 1, 4096));
  config.head_dim = static_cast<int>(text.integer("head_dim", 16, 1024));
  config.gdn.n_k_heads = static_cast<int>(text.integer("linear_num_key_heads", 1, 4096));
  config.gdn.n_v_heads = static_cast<int>(text.integer("linear_num_value_heads", 1, 4096));
  config.gdn.k_head_dim = static_cast<int>(text.integer("linear_key_head_dim", 16, 1024));
  config.gdn.v_head_dim = static_cast<int>(text.integer("linear_value_head_dim", 16, 1024));
  config.max_positions = text.integer("max_position_embeddings", 1, int64_t{1} << 24);
  config.rms_norm_eps = static_cast<float>(text.number_or("rms_norm_eps", 1e-6));
  config.n_mtp_layers = static_cast<int>(text.integer_or("mtp_num_hidden_layers", 0, 0, 1));
  config.tie_word_embeddings = text.flag_or("tie_word_embeddings", config.tie_word_embeddings);
  config.layers = parse_layers(text);
  parse_rope(text, config);

  require(config.n_heads % config.n_kv_heads == 0, text,
          "num_attention_heads must be a multiple of num_key_value_heads");
  require(config.gdn.n_v_heads % config.gdn.n_k_heads == 0, text,
          "linear_num_value_heads must be a multiple of linear_num_key_heads");
  require(text.integer_or("linear_conv_kernel_dim", kConvWidth, 1, 64) == kConvWidth, text,
          "linear_conv_kernel_dim must be 4");
  require(text.flag_or("attn_output_gate", true), text, "attn_output_gate must be true");
  require(!text.flag_or("attention_bias", false), text, "attention_bias must be false");
  require(text.text_or("hidden_act", "silu") == "silu", text, "hidden_act must be silu");
  const std::string gate = text.text_or("output_gate_type", "silu");
  require(gate == "silu" || gate == "swish", text, "output_gate_type must be silu or swish");
  require(!text.flag_or("mtp_use_dedicated_embeddings", false), text,
          "mtp_use_dedicated_embeddings must be false");
  const bool multiples = config.hidden_size % 16 == 0 && config.intermediate_size % 16 == 0 &&
                         config.head_dim % 16 == 0 && config.gdn.k_head_dim % 16 == 0 &&
                         config.gdn.v_head_dim % 16 == 0;
  require(multiples, text, "hidden, intermediate and head sizes must be multiples of 16");
  require(config.rms_norm_eps > 0.0f && config.rms_norm_eps < 1.0f, text,
          "rms_norm_eps is out of range");
}

VisionConfig parse_vision(const Section& section) {
  VisionConfig vision;
  vision.depth = static_cast<int>(section.integer("depth", 1, 1024));
  vision.hidden_size = section.dim("hidden_size");
  vision.n_heads = static_cast<int>(section.integer("num_heads", 1, 1024));
  vision.intermediate_size = section.dim("intermediate_size");
  vision.patch_size = static_cast<int>(section.integer("patch_size", 1, 256));
  vision.temporal_patch_size = static_cast<int>(section.integer("temporal_patch_size", 1, 16));
  vision.spatial_merge_size = static_cast<int>(section.integer("spatial_merge_size", 1, 16));
  vision.in_channels = static_cast<int>(section.integer("in_channels", 1, 16));
  vision.out_hidden_size = section.dim("out_hidden_size");
  vision.n_position_embeddings = section.dim("num_position_embeddings");
  return vision;
}

std::optional<int32_t> token_id(const Section& section, const char* key, int vocab_size) {
  if (section.get(key) == nullptr) return std::nullopt;
  return static_cast<int32_t>(section.integer(key, 0, vocab_size - 1));
}

std::vector<int32_t> token_ids(const Section& section, const char* key, int vocab_size) {
  const Json* value = section.get(key);
  if (value == nullptr) return {};
  std::vector<int32_t> ids;
  for (const Json& item : value->is_array() ? *value : Json::array({*value})) {
    const bool ok = item.is_number_integer() && item >= 0 && item < vocab_size;
    require(ok, section,
            std::string(key) + " holds " + item.dump() + ", not a token of the vocabulary");
    ids.push_back(item.get<int32_t>());
  }
  return ids;
}

}  // namespace

int ModelConfig::n_kv_layers() const {
  return static_cast<int>(std::count(layers.begin(), layers.end(), LayerKind::full_attention));
}

ModelConfig parse_model_config(const std::string& config_json, const std::string& generation_json,
                               const std::string& label) {
  const Json json = parse_object(config_json, label);
  const Section top(json, label);
  const std::string type = top.text_or("model_type", "");
  require(type == "qwen3_5" || type == "qwen3_5_text", top,
          "model_type is '" + type + "': only qwen3_5 checkpoints are supported");
  ModelConfig config;
  config.tie_word_embeddings = top.flag_or("tie_word_embeddings", false);
  const bool nested = top.get("text_config") != nullptr;
  const Section text = nested ? top.object_or_empty("text_config") : top;
  parse_text(text, config);
  if (top.get("vision_config") != nullptr) {
    config.vision = parse_vision(top.object_or_empty("vision_config"));
  }
  config.image_token_id = token_id(top, "image_token_id", config.vocab_size);
  config.video_token_id = token_id(top, "video_token_id", config.vocab_size);
  config.vision_start_token_id = token_id(top, "vision_start_token_id", config.vocab_size);
  config.vision_end_token_id = token_id(top, "vision_end_token_id", config.vocab_size);
  const Section quantization = top.object_or_empty("quantization_config");
  config.quant_method = quantization.text_or("quant_method", "");
  // The tensors of both GPTQ versions look alike, and their zero points differ by one.
  require(quantization.text_or("checkpoint_format", "gptq") != "gptq_v2", quantization,
          "checkpoint_format gptq_v2 is not supported: export as gptq");
  config.eos_token_ids = token_ids(text, "eos_token_id", config.vocab_size);
  if (!generation_json.empty()) {
    const Json generation = parse_object(generation_json, "generation_config.json");
    const Section section(generation, "generation_config.json");
    std::vector<int32_t> ids = token_ids(section, "eos_token_id", config.vocab_size);
    if (!ids.empty()) config.eos_token_ids = std::move(ids);
  }
  return config;
}

ModelConfig load_model_config(const std::filesystem::path& dir) {
  const std::filesystem::path path = dir / "config.json";
  const std::filesystem::path generation = dir / "generation_config.json";
  const std::string generation_json =
      std::filesystem::exists(generation) ? read_text_file(generation) : std::string();
  return parse_model_config(read_text_file(path), generation_json, path.string());
}

}  // namespace lockstep
