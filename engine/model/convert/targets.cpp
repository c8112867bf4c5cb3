#include <nlohmann/json.hpp>

#include "engine/model/convert/convert.h"
#include "engine/model/inspect.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

bool ends_with_any(const std::string& base, std::initializer_list<const char*> ends) {
  for (const char* end : ends) {
    if (base.ends_with(end)) return true;
  }
  return false;
}

bool is_mlp(const std::string& base) {
  return ends_with_any(base, {".mlp.gate_proj", ".mlp.up_proj", ".mlp.down_proj"});
}

bool is_attention(const std::string& base) {
  return ends_with_any(
      base, {".self_attn.q_proj", ".self_attn.k_proj", ".self_attn.v_proj", ".self_attn.o_proj",
             ".linear_attn.in_proj_qkv", ".linear_attn.in_proj_z", ".linear_attn.out_proj"});
}

// Modules that stay in BF16, as `ignore` lists name them.
Json ignored_modules(const ConvertTarget& target) {
  Json ignored = {"lm_head", "model.visual*", "*in_proj_a", "*in_proj_b", "*conv1d", "mtp.fc"};
  if (!target.mtp) ignored.push_back("mtp*");
  return ignored;
}

Json modelopt_config(const ConvertTarget& target, const std::vector<std::string>& matrices) {
  Json layers = Json::object();
  for (const std::string& base : matrices) {
    const std::string_view format = target_format(target, base);
    if (format == "nvfp4-modelopt") {
      layers[base] = {{"quant_algo", "W4A16_NVFP4"}, {"group_size", 16}};
    } else if (format == "fp8-tensor") {
      layers[base] = {{"quant_algo", "FP8"}};
    }
  }
  return {{"quant_method", "modelopt"},
          {"quant_algo", "MIXED_PRECISION"},
          {"quantized_layers", layers},
          {"ignore", ignored_modules(target)}};
}

Json compressed_weights(std::string_view format) {
  if (format == "nvfp4-ct") {
    return {{"num_bits", 4},
            {"type", "float"},
            {"strategy", "tensor_group"},
            {"group_size", 16},
            {"symmetric", true}};
  }
  if (format == "fp8-channel") {
    return {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}, {"symmetric", true}};
  }
  return {{"num_bits", 4},
          {"type", "int"},
          {"strategy", "group"},
          {"group_size", format == "int4-g64" ? 64 : 128},
          {"symmetric", true}};
}

Json compressed_config(const ConvertTarget& target) {
  Json groups = Json::object();
  if (target.mlp == target.attention) {
    groups["group_0"] = {{"targets", {"Linear"}}, {"weights", compressed_weights(target.mlp)}};
  } else {
    groups["group_0"] = {{"targets", {"re:.*\\.mlp\\..*"}},
                         {"weights", compressed_weights(target.mlp)}};
    groups["group_1"] = {{"targets", {"re:.*\\.self_attn\\..*", "re:.*\\.linear_attn\\..*"}},
                         {"weights", compressed_weights(target.attention)}};
  }
  const bool mixed = target.mlp != target.attention;
  const char* format = mixed                         ? "mixed-precision"
                       : target.mlp == "fp8-channel" ? "float-quantized"
                                                     : "pack-quantized";
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"quantization_status", "compressed"},
          {"config_groups", groups},
          {"ignore", ignored_modules(target)}};
}

Json quantization_config(const ConvertTarget& target, const std::vector<std::string>& matrices) {
  if (target.mlp == "bf16") return nullptr;
  if (target.mlp == "nvfp4-modelopt") return modelopt_config(target, matrices);
  if (target.mlp == "fp8-block") {
    return {{"quant_method", "fp8"},
            {"activation_scheme", "dynamic"},
            {"weight_block_size", {128, 128}},
            {"modules_to_not_convert", ignored_modules(target)}};
  }
  if (target.mlp == "gptq") {
    return {{"quant_method", "gptq"},
            {"bits", 4},
            {"group_size", 128},
            {"desc_act", false},
            {"sym", true},
            {"checkpoint_format", "gptq"},
            {"modules_to_not_convert", ignored_modules(target)}};
  }
  if (target.mlp == "awq") {
    return {{"quant_method", "awq"}, {"bits", 4},
            {"group_size", 128},     {"zero_point", true},
            {"version", "gemm"},     {"modules_to_not_convert", ignored_modules(target)}};
  }
  return compressed_config(target);
}

}  // namespace

const std::vector<ConvertTarget>& convert_targets() {
  static const std::vector<ConvertTarget> targets = {
      {"bf16", "bf16", "bf16", true},
      {"nvfp4-fp8", "nvfp4-modelopt", "fp8-tensor", true},
      {"nvfp4-fp8-ct", "nvfp4-ct", "fp8-channel", true},
      {"fp8-channel", "fp8-channel", "fp8-channel", true},
      {"fp8-block", "fp8-block", "fp8-block", true},
      {"int4-g64", "int4-g64", "int4-g64", false},
      {"int4-g128", "int4-g128", "int4-g128", false},
      {"gptq", "gptq", "gptq", false},
      {"awq", "awq", "awq", false},
  };
  return targets;
}

const ConvertTarget* find_convert_target(const std::string& name) {
  for (const ConvertTarget& target : convert_targets()) {
    if (target.name == name) return &target;
  }
  return nullptr;
}

std::string_view target_format(const ConvertTarget& target, const std::string& base) {
  if (tensor_class(base) == "vision" || (tensor_class(base) == "mtp" && !target.mtp)) return "bf16";
  if (is_mlp(base)) return target.mlp;
  return is_attention(base) ? target.attention : "bf16";
}

std::string converted_config(const std::string& config_json, const ConvertTarget& target,
                             const std::vector<std::string>& matrices) {
  Json config = Json::parse(config_json);
  config.erase("quantization_config");
  const Json quantization = quantization_config(target, matrices);
  if (!quantization.is_null()) config["quantization_config"] = quantization;
  return config.dump(2) + "\n";
}

}  // namespace lockstep
