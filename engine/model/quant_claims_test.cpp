#include "engine/model/quant_claims.h"

#include <gtest/gtest.h>

#include "engine/base/mapped_file.h"
#include "engine/model/inspect.h"
#include "engine/model/tests/test_files.h"

namespace lockstep {
namespace {

const std::string kUp = "model.language_model.layers.0.mlp.up_proj";
const std::string kQ = "model.language_model.layers.3.self_attn.q_proj";

QuantClaims claims(const std::string& quantization) {
  return parse_quant_claims("{\"quantization_config\":" + quantization + "}");
}

TEST(QuantClaims, ReadsEveryStyle) {
  EXPECT_EQ(claims(R"({"quant_method":"fp8","modules_to_not_convert":["lm_head"]})").family_of(kUp),
            "fp8");
  EXPECT_EQ(claims(R"({"quant_method":"gptq"})").family_of(kUp), "int4");
  EXPECT_EQ(claims(R"({"quant_method":"awq"})").family_of(kQ), "int4");
  EXPECT_EQ(claims(R"({"quant_method":"modelopt","quant_algo":"NVFP4"})").family_of(kQ), "nvfp4");
  const QuantClaims groups = claims(
      R"({"quant_method":"compressed-tensors","ignore":["re:.*visual.*","lm_head"],"config_groups":{
          "a":{"targets":["re:.*\\.mlp\\..*"],"weights":{"num_bits":4,"type":"float"}},
          "b":{"targets":["Linear"],"weights":{"num_bits":8,"type":"float"}}}})");
  EXPECT_EQ(groups.family_of(kUp), "nvfp4");
  EXPECT_EQ(groups.family_of(kQ), "fp8");
  EXPECT_EQ(groups.family_of("lm_head"), "plain");
  EXPECT_EQ(groups.family_of("model.visual.blocks.0.attn.qkv"), "plain");
  const QuantClaims layers = claims(
      R"({"quantized_layers":{
          "language_model.model.layers.0.mlp.up_proj":{"quant_algo":"W4A16_NVFP4"}}})");
  EXPECT_EQ(layers.family_of(kUp), "nvfp4");
  EXPECT_EQ(layers.family_of(kQ), "plain");
  EXPECT_EQ(parse_quant_claims("{}").family_of(kUp), "");
}

TEST(QuantClaims, IgnoreEntriesMayBeGlobsOrExpressions) {
  const auto ignored = [](const std::string& pattern) {
    return claims("{\"quant_method\":\"fp8\",\"ignore\":[\"" + pattern + "\"]}").family_of(kUp) ==
           "plain";
  };
  for (const char* pattern :
       {"*up_proj", "*.mlp.*", "model.layers.0", "model.language_model.layers.0.mlp.up_proj",
        "re:.*up_proj", "re:^model\\\\.language.*", "re:.*\\\\.up_proj$"}) {
    EXPECT_TRUE(ignored(pattern)) << pattern;
  }
  for (const char* pattern : {"up_proj", "*down_proj", "model.layers.00", "re:up_proj", "re:.*mlp$",
                              "re:(a*)*b", "re:["}) {
    EXPECT_FALSE(ignored(pattern)) << pattern;
  }
}

TEST(QuantClaims, HostilePatternsEndSoon) {
  std::string pattern = "re:";
  for (int i = 0; i < 100; ++i) pattern += ".*";
  EXPECT_EQ(claims("{\"quant_method\":\"fp8\",\"ignore\":[\"" + pattern + "z\"]}").family_of(kUp),
            "fp8");
}

TEST(Inspect, LiesOfTheConfigAreReportedNotObeyed) {
  const std::filesystem::path golden(LOCKSTEP_GOLDEN_DIR "/tiny-qwen3_5");
  const ModelConfig config = load_model_config(golden);
  const Checkpoint checkpoint(golden);
  EXPECT_EQ(
      inspect_checkpoint(config, checkpoint, 2, read_text_file(golden / "config.json")).oddities,
      std::vector<std::string>());
  const std::string lie = R"({"quantization_config":{"quant_method":"gptq"}})";
  const InspectReport report = inspect_checkpoint(config, checkpoint, 2, lie);
  bool about_mlp = false;
  for (const std::string& oddity : report.oddities) {
    about_mlp = about_mlp || (oddity.find("says int4") != std::string::npos &&
                              oddity.find("nvfp4-modelopt") != std::string::npos);
  }
  EXPECT_TRUE(about_mlp);
}

TEST(Inspect, TheSlowFormatOfACardIsNamed) {
  InspectReport report;
  report.rows.push_back({"mlp", "int4-ct", 1, 1, {}});
  report.rows.push_back({"attention", "nvfp4-ct", 1, 1, {}});
  note_slow_formats({"NVIDIA H200"}, report);
  EXPECT_TRUE(report.oddities.empty());
  note_slow_formats({"Tesla V100-SXM2-32GB", "Tesla V100-SXM2-32GB"}, report);
  ASSERT_EQ(report.oddities.size(), 1u);
  EXPECT_NE(report.oddities[0].find("int4-ct on Tesla V100"), std::string::npos);
}

TEST(Inspect, MissingMtpIsNamed) {
  const std::filesystem::path golden(LOCKSTEP_GOLDEN_DIR "/tiny-qwen3_5");
  const Checkpoint whole(golden);
  std::vector<TensorInfo> index;
  for (const auto& [name, tensor] : whole.tensors()) {
    if (name.rfind("mtp.", 0) != 0) index.push_back({name, tensor->dtype, tensor->shape, {}});
  }
  const Checkpoint without("without", index, nullptr);
  const InspectReport report = inspect_checkpoint(load_model_config(golden), without, 2, "{}");
  ASSERT_EQ(report.oddities.size(), 1u);
  EXPECT_NE(report.oddities[0].find("MTP"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
