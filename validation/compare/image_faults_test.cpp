// Runs the comparison on the golden model's image prompts: sound, and with every planted mistake of
// the vision path, each of which it must see.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"
#include "engine/model/safetensors.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

const fs::path kOracle = fs::path(LOCKSTEP_GOLDEN_DIR) / "oracle";

// The golden oracle cut down to two image prompts: interpolated positions, and two pictures.
class ImageCompare : public ::testing::Test {
 protected:
  static bool is_kept(const std::string& prompt) {
    return prompt == "image-tall" || prompt == "image-two";
  }

  void SetUp() override {
    Json json = Json::parse(read_text_file(kOracle / "public.json"));
    Json kept = Json::array();
    for (const Json& prompt : json["prompts"]) {
      if (is_kept(prompt["name"].get<std::string>())) kept.push_back(prompt);
    }
    json["prompts"] = kept;
    write_file_atomically(folder_.path() / "cut.json", json.dump());
    const SafetensorsFile file(kOracle / "public.safetensors");
    SafetensorsWriter writer;
    for (const TensorInfo& tensor : file.tensors()) {
      if (!is_kept(tensor.name.substr(0, tensor.name.find('/')))) continue;
      writer.add(tensor.name, tensor.dtype, tensor.shape, tensor.bytes);
    }
    writer.write(folder_.path() / "cut.safetensors");
    for (const char* picture : {"image-tall", "image-two-0", "image-two-1"}) {
      fs::copy_file(kOracle / fmt::format("public-{}.png", picture),
                    folder_.path() / fmt::format("cut-{}.png", picture));
    }
  }

  Json compare(const std::vector<std::string>& more) {
    std::vector<std::string> argv = {std::string(LOCKSTEP_BIN_DIR) + "/lockstep-compare",
                                     "--json",
                                     "--model",
                                     std::string(LOCKSTEP_GOLDEN_DIR) + "/tiny-qwen3_5",
                                     "--oracle",
                                     (folder_.path() / "cut").string()};
    argv.insert(argv.end(), more.begin(), more.end());
    const ProcessResult result = run_process(argv, std::chrono::minutes(5));
    EXPECT_FALSE(result.timed_out);
    Json report = Json::parse(result.stdout_text, nullptr, false);
    EXPECT_FALSE(report.is_discarded()) << result.stdout_text << result.stderr_text;
    report["exit_code"] = result.exit_code;
    return report;
  }

 private:
  TempDir folder_;
};

TEST_F(ImageCompare, SoundRunsPass) {
  for (const char* tp : {"1", "2"}) {
    for (const char* precision : {"fp32", "bf16"}) {
      const Json report = compare({"--tp", tp, "--precision", precision});
      EXPECT_EQ(report["exit_code"], 0) << tp << " " << precision << " " << report.dump(1);
    }
  }
}

class ImageFaults : public ImageCompare, public ::testing::WithParamInterface<std::string> {};

TEST_P(ImageFaults, IsCaught) {
  const Json report = compare({"--precision", "fp32", "--fault", GetParam()});
  EXPECT_EQ(report["exit_code"], 1) << report.dump(1);
  EXPECT_EQ(report["verdict"], "FAIL");
}

INSTANTIATE_TEST_SUITE_P(Vision, ImageFaults,
                         ::testing::Values("mrope.delta-ignored", "mrope.sections-contiguous",
                                           "mrope.temporal-only", "vision.images-swapped",
                                           "vision.merger-gelu-tanh", "vision.patch-order",
                                           "vision.position-nearest", "vision.rope-axes-swapped"),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           for (char& c : name) c = c == '.' || c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace lockstep
