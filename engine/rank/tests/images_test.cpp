// Pictures in prompts: against the oracle in float32, and the invariants I1 to I7 with pictures.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/rank/image_reader.h"
#include "engine/rank/model_text.h"
#include "engine/rank/prompt_images.h"
#include "engine/rank/tests/golden_engine.h"

namespace lockstep {
namespace {

using namespace testing;
using Json = nlohmann::json;

const std::filesystem::path kGolden = LOCKSTEP_GOLDEN_DIR;
const std::vector<std::string> kImagePrompts = {"image-square", "image-wide", "image-tall",
                                                "image-resize", "image-two"};

Json oracle_entry(const std::string& name) {
  static const Json json = Json::parse(read_text_file(kGolden / "oracle" / "public.json"));
  for (const Json& prompt : json["prompts"]) {
    if (prompt["name"] == name) return prompt;
  }
  return {};
}

std::shared_ptr<const ImagePatches> picture(const std::string& file) {
  static const ImageReader reader(kGolden / "tiny-qwen3_5", golden_model().config);
  return reader.read_file(kGolden / "oracle" / ("public-" + file + ".png"));
}

Request image_request(const std::string& name, int64_t max_tokens = 24) {
  Request request = greedy_request(name, oracle_prompt(name), max_tokens);
  if (name == "image-two") {
    request.images = {picture("image-two-0"), picture("image-two-1")};
  } else {
    request.images = {picture(name)};
  }
  return request;
}

// 2 x 35 pads: longer than one chunk of 64.
Request long_request(const std::string& name, const std::string& first = "image-tall",
                     const std::string& second = "image-tall") {
  const ModelConfig& config = golden_model().config;
  Request request = greedy_request(name, {}, 12);
  request.images = {picture(first), picture(second)};
  std::vector<int32_t> ids = oracle_prompt("code-short");
  ids.resize(9);
  for (int i = 0; i < 2; ++i)
    ids.insert(ids.end(), {*config.vision_start_token_id, *config.image_token_id});
  const std::vector<int32_t> tail = oracle_prompt("zh-short");
  ids.insert(ids.end(), tail.begin(), tail.end());
  request.prompt = expand_image_pads(ids, request.images, config, name);
  return request;
}

EngineOptions fp32_options(int n_drafts) {
  EngineOptions options;
  options.precision = Precision::fp32;
  options.kv_type = KvType::fp32;
  options.max_context = 1024;
  options.n_drafts = n_drafts;
  return options;
}

EngineOptions bf16_options() {
  EngineOptions options;
  options.max_context = 1024;
  options.n_drafts = 3;
  return options;
}

TEST(Images, TokensDraftsAndRopeDeltaAreTheOracles) {
  SoloEngine engine(fp32_options(3), 2);
  std::vector<Request> requests;
  for (const std::string& name : kImagePrompts) {
    requests.push_back(image_request(name, 96));
    requests.back().report_drafts = true;
  }
  const std::vector<RequestResult> results = engine->run(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const Json oracle = oracle_entry(kImagePrompts[i]);
    EXPECT_EQ(results[i].ids, oracle_greedy(kImagePrompts[i])) << kImagePrompts[i];
    EXPECT_EQ(results[i].rope_delta, oracle["rope_delta"].get<int32_t>()) << kImagePrompts[i];
    EXPECT_EQ(results[i].mtp.accepted, oracle["mtp_accepted"].get<int64_t>()) << kImagePrompts[i];
    for (const DraftRound& round : results[i].mtp.draft_rounds) {
      const auto want =
          oracle["mtp_drafts"][static_cast<size_t>(round.step)].get<std::vector<int32_t>>();
      ASSERT_LE(round.drafts.size(), want.size());
      EXPECT_TRUE(std::equal(round.drafts.begin(), round.drafts.end(), want.begin()))
          << kImagePrompts[i] << " step " << round.step;
    }
  }
}

TEST(Images, SpeculationAndOtherRequestsChangeNothing) {
  std::vector<Request> requests;
  for (const std::string& name : kImagePrompts) requests.push_back(image_request(name));
  requests.insert(requests.begin() + 1, greedy_request("text", oracle_prompt("code-short"), 24));
  requests.push_back(sampled_request(3, oracle_prompt("chat-code"), 24));
  requests.push_back(image_request("image-tall"));
  requests.back().name = "sampled-image";
  requests.back().sampling = sampled_request(7, {1}, 1).sampling;
  std::vector<std::vector<int32_t>> alone;
  for (const Request& request : requests) {
    EngineOptions options = bf16_options();
    options.n_drafts = 0;
    SoloEngine engine(options);
    alone.push_back(engine->run({request})[0].ids);
  }
  EngineOptions options = bf16_options();
  options.n_slots = 3;
  options.prefix_cache_bytes = int64_t{64} << 20;
  SoloEngine together(options, 2);
  EXPECT_EQ(ids_of(together->run(requests)), alone);
}

TEST(Images, TwoRanksGiveTheBitsOfOne) {
  std::vector<Request> requests;
  for (const char* name : {"image-tall", "image-two"}) {
    requests.push_back(image_request(name));
    requests.back().n_logits = 8;
  }
  requests.push_back(long_request("long"));
  requests.back().n_logits = 8;
  for (const EngineOptions& options : {bf16_options(), fp32_options(2)}) {
    SoloEngine one(options);
    const std::vector<RequestResult> want = one->run(requests);
    const PairResults pair = run_pair(options, requests);
    for (const auto& rank : pair.ranks) {
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(rank[i].ids, want[i].ids);
        for (size_t step = 0; step < want[i].logits.size(); ++step) {
          EXPECT_EQ(rank[i].logits[step].values, want[i].logits[step].values);
        }
      }
    }
  }
}

TEST(Images, ChunksThatCutAPictureChangeNoBit) {
  Request request = long_request("long");
  request.n_logits = 8;
  std::vector<RequestResult> results;
  for (const int64_t grid : {512, 64}) {
    EngineOptions options = fp32_options(3);
    options.prefill_grid = grid;
    SoloEngine engine(options);
    results.push_back(engine->run({request})[0]);
  }
  EXPECT_EQ(results[0].ids, results[1].ids);
  EXPECT_EQ(results[0].mtp.accepted, results[1].mtp.accepted);
  for (size_t step = 0; step < results[0].logits.size(); ++step) {
    EXPECT_EQ(results[0].logits[step].values, results[1].logits[step].values);
  }
}

TEST(Images, ThePrefixCacheKnowsPicturesByContent) {
  EngineOptions options = bf16_options();
  options.prefill_grid = 64;
  SoloEngine cold(options);
  options.prefix_cache_bytes = int64_t{64} << 20;
  SoloEngine warm(options);
  const Request first = long_request("first");
  // The same token ids throughout; the second picture is another one.
  Request other = first;
  auto changed = std::make_shared<ImagePatches>(*first.images[1]);
  for (float& value : changed->values) value = -value;
  changed->digest ^= 0x5555;
  other.images[1] = changed;
  const auto again = [](SoloEngine& engine, const Request& request) {
    return engine->run({request})[0];
  };
  const RequestResult want_first = again(cold, first);
  const RequestResult want_other = again(cold, other);
  EXPECT_NE(want_first.ids, want_other.ids);
  EXPECT_EQ(again(warm, first).ids, want_first.ids);
  const RequestResult hit = again(warm, first);
  EXPECT_EQ(hit.ids, want_first.ids);
  EXPECT_EQ(hit.mtp.accepted, want_first.mtp.accepted);
  EXPECT_GE(hit.cache_hit_tokens, 64);
  const RequestResult missed = again(warm, other);
  EXPECT_EQ(missed.ids, want_other.ids);
  EXPECT_LT(missed.cache_hit_tokens, hit.cache_hit_tokens);
}

TEST(Images, ACancelledPictureLeavesNoTrace) {
  EngineOptions options = bf16_options();
  SoloEngine engine(options);
  const uint64_t id = engine->submit(image_request("image-two"));
  for (int i = 0; i < 3; ++i) engine->step();
  engine->cancel(id);
  while (engine->step()) {
  }
  const std::vector<int32_t> after = engine->run({image_request("image-tall")})[0].ids;
  SoloEngine fresh(options);
  EXPECT_EQ(after, fresh->run({image_request("image-tall")})[0].ids);
}

TEST(Images, MismatchedPromptsAreRefused) {
  SoloEngine engine(bf16_options());
  const auto complaint = [&](const Request& request) -> std::string {
    try {
      engine->check_request(request);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  Request request = image_request("image-two");
  EXPECT_EQ(complaint(request), "");
  request.images.pop_back();
  EXPECT_NE(complaint(request).find("10 image pads, its 1 pictures take 4"), std::string::npos);
  request.images = {picture("image-two-1"), picture("image-two-0")};
  EXPECT_NE(complaint(request).find("interrupted"), std::string::npos);
  request = image_request("image-square");
  request.images.clear();
  EXPECT_NE(complaint(request).find("image pads"), std::string::npos);
  request = greedy_request("video", {5, *golden_model().config.video_token_id, 6}, 4);
  EXPECT_NE(complaint(request).find("video"), std::string::npos);
}

TEST(Images, ChatBodiesGiveTheOraclesPrompt) {
  const ModelConfig& config = golden_model().config;
  const ImageReader reader(kGolden / "tiny-qwen3_5", config);
  const ModelText text(kGolden / "tiny-qwen3_5");
  for (const std::string& name : kImagePrompts) {
    const Json oracle = oracle_entry(name);
    const Request request = image_request(name);
    std::string body =
        image_question_body(request.images.size(), oracle["question"].get<std::string>());
    const ImageList taken = take_chat_images(body, request.images, reader);
    EXPECT_EQ(taken, request.images);
    EXPECT_EQ(expand_image_pads(text.encode_chat(body), taken, config, name), request.prompt)
        << name;
  }
}

TEST(Images, ChatPartsThatAreNoPictureAreRefused) {
  const ImageReader reader(kGolden / "tiny-qwen3_5", golden_model().config);
  const auto complaint = [&](const std::string& part) -> std::string {
    std::string body = R"({"messages":[{"role":"user","content":[)" + part + "]}]}";
    try {
      take_chat_images(body, {}, reader);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(complaint(R"({"type":"text","text":"x"})"), "");
  EXPECT_NE(
      complaint(R"({"type":"image_url","image_url":{"url":"http://a/b.png"}})").find("not fetched"),
      std::string::npos);
  EXPECT_NE(complaint(R"({"type":"video_url","video_url":{"url":"data:"}})").find("video"),
            std::string::npos);
  EXPECT_NE(complaint(R"({"type":"image"})").find("holds no picture"), std::string::npos);
  EXPECT_NE(complaint(R"({"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}})")
                .find("messages[0].content[0]"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
