// Naming the first tensor that differs, and jobs that stand for requests.
#include "engine/serve/postmortem.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/temp_dir.h"
#include "engine/model/safetensors.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::json;
using Tensors = std::map<std::string, std::vector<float>>;

class TapFiles : public ::testing::Test {
 protected:
  // Tensors of two rows of two values; those named in `sharded` are parts.
  std::string write(const std::string& name, const Tensors& tensors,
                    const std::vector<std::string>& sharded = {}) {
    SafetensorsWriter writer;
    for (const auto& [tensor, values] : tensors) {
      writer.add(tensor, DType::F32, {2, 2}, std::as_bytes(std::span(values)));
    }
    for (const std::string& tensor : sharded) writer.set_metadata("shard:" + tensor, "4;0:2");
    const auto path = folder_.path() / name;
    writer.write(path);
    return path;
  }
  TempDir folder_;
};

const std::vector<float> kSame = {1, 2, 3, 4};
const std::vector<float> kRow0 = {1, 9, 3, 4};
const std::vector<float> kRow1 = {1, 2, 9, 4};

TEST_F(TapFiles, TheFirstPositionCountsThenTheOrderOfComputation) {
  const std::string a = write("a", {{"decode/layers.0.out", kSame},
                                    {"decode/layers.2.mixer", kSame},
                                    {"decode/layers.10.mixer", kSame},
                                    {"decode/final_norm", kSame}});
  const std::string b = write("b", {{"decode/layers.0.out", kRow1},
                                    {"decode/layers.2.mixer", kRow0},
                                    {"decode/layers.10.mixer", kRow0},
                                    {"decode/final_norm", kRow0}});
  const TensorDifference first = first_difference(a, b);
  EXPECT_EQ(first.tensor, "decode/layers.2.mixer");
  EXPECT_EQ(first.row, 0);
  EXPECT_EQ(first.index, 1);
  EXPECT_EQ(first.rank_0, 2.0f);
  EXPECT_EQ(first.rank_1, 9.0f);
}

TEST_F(TapFiles, PromptComesBeforeDecode) {
  const std::string a = write("a", {{"decode/embed", kSame}, {"final_norm", kSame}});
  const std::string b = write("b", {{"decode/embed", kRow0}, {"final_norm", kRow1}});
  EXPECT_EQ(first_difference(a, b).tensor, "final_norm");
}

TEST_F(TapFiles, PartsMayDifferAndEqualFilesDoNot) {
  const std::string a =
      write("a", {{"state/layers.0.k", kSame}, {"embed", kSame}}, {"state/layers.0.k"});
  const std::string b =
      write("b", {{"state/layers.0.k", kRow0}, {"embed", kSame}}, {"state/layers.0.k"});
  EXPECT_FALSE(first_difference(a, b).found());
}

TEST_F(TapFiles, AZeroThatChangedItsSignDiffers) {
  const std::string a = write("a", {{"embed", {0.0f, 1, 2, 3}}});
  const std::string b = write("b", {{"embed", {-0.0f, 1, 2, 3}}});
  EXPECT_EQ(first_difference(a, b).tensor, "embed");
}

std::string line(const std::string& target, const Json& body) {
  return Json({{"id", "req-1"}, {"seed", 77}, {"target", target}, {"body", body.dump()}}).dump();
}

TEST(JobOfRequest, KeepsAllBitsOfASeed) {
  const int64_t seed = (int64_t{1} << 53) - 1;
  const Json request = {
      {"id", "r"}, {"seed", seed}, {"target", "/v1/completions"}, {"body", R"({"prompt": "x"})"}};
  EXPECT_EQ(Json::parse(job_of_request(request.dump(), "r", 8))["seed"], seed);
}

TEST(JobOfRequest, TakesTheProxysSeedWhereTheBodyHasNone) {
  const Json plain = Json::parse(job_of_request(
      line("/v1/completions", {{"prompt", "x"}, {"top_k", 3}, {"stream", true}}), "r", 8));
  EXPECT_EQ(plain["seed"], 77);
  EXPECT_EQ(plain["prompt"], "x");
  EXPECT_EQ(plain["top_k"], 3);
  EXPECT_FALSE(plain.contains("stream")) << "jobs refuse unknown fields";
  const Json seeded = Json::parse(job_of_request(
      line("/v1/completions", {{"prompt", "x"}, {"seed", 5}, {"max_tokens", 9}}), "r", 8));
  EXPECT_EQ(seeded["seed"], 5);
  EXPECT_EQ(seeded["max_tokens"], 9);
  EXPECT_EQ(seeded["taps"]["last"], 8);
}

TEST(JobOfRequest, ChatsAndMessagesBecomeChats) {
  const Json messages = {{{"role", "user"}, {"content", "hi"}}};
  const Json chat =
      Json::parse(job_of_request(line("/v1/chat/completions", {{"messages", messages}}), "r", 8));
  EXPECT_EQ(chat["chat"]["messages"], messages);
  EXPECT_EQ(chat["chat"]["seed"], 77);
  const Json anthropic =
      Json::parse(job_of_request(line("/v1/messages", {{"messages", messages},
                                                       {"system", "be kind"},
                                                       {"max_tokens", 4},
                                                       {"stop_sequences", {"\n"}}}),
                                 "r", 8));
  EXPECT_EQ(anthropic["chat"]["messages"][0]["content"], "be kind");
  EXPECT_EQ(anthropic["chat"]["messages"][1], messages[0]);
  EXPECT_EQ(anthropic["chat"]["stop"][0], "\n");
  EXPECT_THROW(job_of_request(line("/v1/responses", {{"input", "x"}}), "r", 8), Error);
  EXPECT_THROW(job_of_request("{", "r", 8), Error);
}

TEST(Postmortem, NamesTheFieldThatDiffersInTheRecords) {
  const TempDir folder;
  EXPECT_THROW(examine_halt(folder.path()), Error);
  write_file_atomically(folder.path() / "halt.json", std::string(R"({"reason":"why"})"));
  const Json same = {{"round", 6}, {"n_tokens", 1}, {"token_hash", "aa"}};
  const Json good = {{"round", 7}, {"n_tokens", 1}, {"token_hash", "bb"}};
  const Json bad = {{"round", 7}, {"n_tokens", 1}, {"token_hash", "bc"}};
  write_file_atomically(
      folder.path() / "halt-0-17.json",
      Json({{"rounds", {Json::array({same, same}), Json::array({good, bad})}}}).dump());
  const Postmortem report = examine_halt(folder.path());
  ASSERT_EQ(report.records.size(), 1u);
  EXPECT_EQ(report.records[0].round, 7u);
  EXPECT_EQ(report.records[0].field, "token_hash");
  EXPECT_EQ(report.reason, "why");
  EXPECT_EQ(report.n_requests, 0);
}

}  // namespace
}  // namespace lockstep::serve
