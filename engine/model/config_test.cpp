#include "engine/model/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/mapped_file.h"
#include "engine/model/tests/test_files.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

Json golden() {
  return Json::parse(read_text_file(LOCKSTEP_GOLDEN_DIR "/tiny-qwen3_5/config.json"));
}

ModelConfig parse(const Json& json, const std::string& generation = "") {
  return parse_model_config(json.dump(), generation, "the-config");
}

void expect_refused(const Json& json, const std::vector<std::string>& words) {
  std::vector<std::string> all = words;
  all.push_back("the-config");
  expect_error([&] { parse(json); }, all);
}

TEST(ModelConfig, ReadsTheGoldenModel) {
  const ModelConfig config = load_model_config(LOCKSTEP_GOLDEN_DIR "/tiny-qwen3_5");
  EXPECT_EQ(config.hidden_size, 256);
  EXPECT_EQ(config.n_layers(), 8);
  EXPECT_EQ(config.n_kv_layers(), 2);
  EXPECT_EQ(config.layers[3], LayerKind::full_attention);
  EXPECT_EQ(config.gdn.conv_channels(), 1280);
  EXPECT_EQ(config.rotary_dim, 64);
  EXPECT_EQ(config.rope_theta, 1e7);
  EXPECT_EQ(config.vision->depth, 2);
  EXPECT_EQ(config.quant_method, "modelopt");
}

TEST(ModelConfig, TakesFlatTextConfigsAndFlattenedRope) {
  Json json = golden()["text_config"];
  json["rope_theta"] = 1e6;
  json["partial_rotary_factor"] = 0.5;
  json.erase("rope_parameters");
  const ModelConfig config = parse(json);
  EXPECT_EQ(config.rope_theta, 1e6);
  EXPECT_EQ(config.rotary_dim, 128);
  EXPECT_FALSE(config.vision);
}

TEST(ModelConfig, LayerTypesHaveTheLastWord) {
  Json json = golden();
  json["text_config"]["layer_types"] = Json::array();
  for (int i = 0; i < 8; ++i) {
    json["text_config"]["layer_types"].push_back(i == 0 ? "full_attention" : "linear_attention");
  }
  const ModelConfig config = parse(json);
  EXPECT_EQ(config.n_kv_layers(), 1);
  EXPECT_EQ(config.layers[0], LayerKind::full_attention);
  json["text_config"]["layer_types"][2] = "sliding_attention";
  expect_refused(json, {"layer_types[2]", "sliding_attention"});
  json["text_config"]["layer_types"].erase(0);
  expect_refused(json, {"layer_types"});
}

TEST(ModelConfig, SizesHaveNoDefaults) {
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim", "linear_num_key_heads",
        "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim"}) {
    for (const Json& value : {Json(), Json("12"), Json(0), Json(-3), Json(1.5), Json(1e300),
                              Json(18446744073709551615ull), Json::array()}) {
      Json json = golden();
      json["text_config"][key] = value;
      expect_refused(json, {key});
    }
    Json json = golden();
    json["text_config"].erase(key);
    expect_refused(json, {key, "missing"});
  }
}

TEST(ModelConfig, RefusesWhatTheEngineCannotDo) {
  const std::pair<const char*, Json> rows[] = {
      {"hidden_act", "gelu"},        {"attention_bias", true},
      {"attn_output_gate", false},   {"output_gate_type", "tanh"},
      {"linear_conv_kernel_dim", 3}, {"mtp_use_dedicated_embeddings", true},
      {"rms_norm_eps", 0.0},         {"num_key_value_heads", 5},
      {"linear_num_value_heads", 5}, {"hidden_size", 250},
      {"mtp_num_hidden_layers", 2},  {"full_attention_interval", 0},
  };
  for (const auto& [key, value] : rows) {
    Json json = golden();
    json["text_config"][key] = value;
    expect_refused(json, {key == std::string("hidden_size") ? "multiples of 16" : key});
  }
  Json yarn = golden();
  yarn["text_config"]["rope_parameters"]["rope_type"] = "yarn";
  expect_refused(yarn, {"rope_type", "yarn"});
  Json sections = golden();
  sections["text_config"]["rope_parameters"]["mrope_section"] = {16, 8, 8};
  expect_refused(sections, {"mrope_section"});
  Json other = golden();
  other["model_type"] = "llama";
  expect_refused(other, {"model_type", "llama"});
  Json zeros = golden();
  zeros["quantization_config"]["checkpoint_format"] = "gptq_v2";
  expect_refused(zeros, {"gptq_v2"});
}

TEST(ModelConfig, RefusesTextsThatAreNoConfig) {
  for (const std::string& text :
       {std::string(), std::string("["), std::string("[]"), std::string("{\"model_type\":7}"),
        std::string(100000, '['), std::string("{\"text_config\":[]}")}) {
    EXPECT_THROW(parse_model_config(text, "", "the-config"), Error) << text.substr(0, 40);
  }
}

TEST(ModelConfig, EndTokensComeFromGenerationConfig) {
  EXPECT_EQ(parse(golden(), R"({"eos_token_id": [7, 9]})").eos_token_ids,
            (std::vector<int32_t>{7, 9}));
  EXPECT_EQ(parse(golden()).eos_token_ids, (std::vector<int32_t>{4066}));
  for (const char* bad : {R"({"eos_token_id": 4096})", R"({"eos_token_id": [-1]})",
                          R"({"eos_token_id": ["7"]})", "[]"}) {
    expect_error([&] { parse(golden(), bad); }, {"generation_config.json"});
  }
}

}  // namespace
}  // namespace lockstep
