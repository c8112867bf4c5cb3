#include "validation/oracle.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/temp_dir.h"
#include "validation/testing/synthetic_run.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

class OracleFile : public ::testing::Test {
 protected:
  OracleFile() : prefix_(dir_.path() / "public") {
    testing::write_oracle(testing::make_synthetic_run(Precision::fp32).oracle, prefix_);
  }

  std::string json_path() const { return prefix_.string() + ".json"; }

  std::string error() const {
    try {
      read_oracle(prefix_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::could_not_judge);
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "more than one line";
      return error.what();
    }
    return "no error";
  }

  std::string error_after(const std::function<void(Json&)>& change) const {
    const std::string before = read_text_file(json_path());
    Json json = Json::parse(before);
    change(json);
    write_file_atomically(json_path(), json.dump());
    const std::string message = error();
    write_file_atomically(json_path(), before);
    return message;
  }

  TempDir dir_;
  std::filesystem::path prefix_;
};

TEST_F(OracleFile, ReadsWhatWasWritten) {
  const Oracle oracle = read_oracle(prefix_);
  ASSERT_EQ(oracle.prompts.size(), 3u);
  const OraclePrompt& alpha = oracle.prompts[0];
  EXPECT_EQ(alpha.name, "alpha");
  EXPECT_EQ(alpha.ids.size(), 20u);
  EXPECT_EQ(alpha.greedy.size(), 96u);
  EXPECT_TRUE(alpha.has_state());
  EXPECT_FALSE(oracle.prompts[1].has_state());
  EXPECT_TRUE(oracle.prompts[2].has_image);
  EXPECT_EQ(alpha.taps.at("final_norm").shape, (std::vector<int64_t>{8, testing::kHidden}));
  ASSERT_NE(alpha.noise_at("decode/final_norm"), nullptr);
  EXPECT_EQ(alpha.noise_at("decode/final_norm")->rel_l2, 0.01);
  EXPECT_EQ(alpha.noise_at("state/layers.1.k"), nullptr);
}

TEST_F(OracleFile, GoldenOracle) {
  const Oracle oracle = read_oracle(std::string(LOCKSTEP_GOLDEN_DIR) + "/oracle/public");
  int n_images = 0;
  int n_states = 0;
  for (const OraclePrompt& prompt : oracle.prompts) {
    n_images += prompt.has_image ? 1 : 0;
    n_states += prompt.has_state() ? 1 : 0;
    EXPECT_EQ(prompt.taps.count("decode/final_norm"), 1u) << prompt.name;
    EXPECT_EQ(prompt.taps.count("vision_embeds"), prompt.has_image ? 1u : 0u) << prompt.name;
    EXPECT_EQ(prompt.rope_delta.has_value(), prompt.has_image) << prompt.name;
    EXPECT_EQ(prompt.resized, prompt.name == "image-resize") << prompt.name;
    EXPECT_EQ(prompt.images.size(), prompt.name == "image-two" ? 2u : prompt.has_image ? 1u : 0u);
    for (const auto& image : prompt.images) EXPECT_TRUE(std::filesystem::exists(image)) << image;
  }
  EXPECT_EQ(oracle.prompts.size(), 17u);
  EXPECT_EQ(n_images, 5);
  EXPECT_EQ(n_states, 5);
}

TEST_F(OracleFile, HostileJsonGivesOneLine) {
  const std::vector<std::pair<const char*, std::function<void(Json&)>>> changes = {
      {"\"prompts\" is missing", [](Json& j) { j.erase("prompts"); }},
      {"must be a list", [](Json& j) { j["prompts"] = 7; }},
      {"\"tail\"", [](Json& j) { j["tail"] = -1; }},
      {"\"tail\"", [](Json& j) { j["tail"] = 1u << 30; }},
      {"\"name\" is missing", [](Json& j) { j["prompts"][0] = "text"; }},
      {"name must be", [](Json& j) { j["prompts"][0]["name"] = "../../etc/passwd"; }},
      {"name must be", [](Json& j) { j["prompts"][0]["name"] = ""; }},
      {"name must be", [](Json& j) { j["prompts"][0]["name"] = ".."; }},
      {"listed twice", [](Json& j) { j["prompts"][1]["name"] = "alpha"; }},
      {"no token id", [](Json& j) { j["prompts"][0]["ids"][0] = -4; }},
      {"no token id", [](Json& j) { j["prompts"][0]["greedy"][0] = 1e9; }},
      {"no token id", [](Json& j) { j["prompts"][0]["second"][0] = "a"; }},
      {"is empty", [](Json& j) { j["prompts"][0]["ids"] = Json::array(); }},
      {"one length", [](Json& j) { j["prompts"][0]["margin"].erase(0); }},
      {"no number", [](Json& j) { j["prompts"][0]["margin"][3] = nullptr; }},
      {"bf16_noise", [](Json& j) { j["prompts"][0]["bf16_noise"] = 3; }},
      {"out of range", [](Json& j) { j["prompts"][0]["bf16_noise"]["embed"]["rel"] = -1; }},
      {"\"cos\" is missing", [](Json& j) { j["prompts"][0]["bf16_noise"]["embed"].erase("cos"); }},
      {"belongs to no prompt", [](Json& j) { j["prompts"][0]["name"] = "gamma"; }},
  };
  EXPECT_EQ(error(), "no error");
  for (const auto& [expected, change] : changes) {
    EXPECT_NE(error_after(change).find(expected), std::string::npos)
        << expected << " / " << error_after(change);
  }
}

TEST_F(OracleFile, BrokenFilesGiveOneLine) {
  const std::string json = read_text_file(json_path());
  for (const std::string& text : {std::string("{"), std::string("\xff\xfe"), json.substr(0, 900),
                                  std::string(100000, '['), std::string("null")}) {
    write_file_atomically(json_path(), text);
    EXPECT_NE(error().find("public.json"), std::string::npos);
  }
  write_file_atomically(json_path(), json);
  write_file_atomically(prefix_.string() + ".safetensors", std::string("not a container"));
  EXPECT_NE(error().find("public.safetensors"), std::string::npos);
  std::filesystem::remove(prefix_.string() + ".safetensors");
  EXPECT_NE(error().find("public.safetensors"), std::string::npos);
  std::filesystem::remove(json_path());
  EXPECT_NE(error().find("public.json"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
