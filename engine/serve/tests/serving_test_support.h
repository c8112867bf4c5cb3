// Tests of the whole server on the golden model.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/golden_folder.h"
#include "engine/serve/tests/server_under_test.h"

namespace lockstep::serve {

using Json = nlohmann::ordered_json;

inline const std::string kBin =
    std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "bin";
inline const std::string kModel = golden_folder() / "tiny-qwen3_5";

// With LOCKSTEP_TEST_DEVICE (ci/lanes/serve_cuda.sh) the ranks run on a card, both on one if need
// be.
inline bool ranks_run_on_card() {
  return std::getenv("LOCKSTEP_TEST_DEVICE") != nullptr;
}

inline std::vector<std::string> device_flags() {
  if (!ranks_run_on_card()) return {};
  return {"--backend=cuda", "--share-device"};
}

// Short chunks, so that short prompts have several and the prefix cache is used.
inline const std::vector<std::string> kEngine = [] {
  std::vector<std::string> flags = {"--model=" + kModel, "--prefill-grid=64", "--threads=1"};
  for (const std::string& flag : device_flags()) flags.push_back(flag);
  return flags;
}();

// The text of a completion, up to an error in its stream.
inline std::string text_of(const HttpAnswer& answer, bool stream) {
  if (!stream) return Json::parse(answer.body)["choices"][0]["text"].get<std::string>();
  std::string text;
  for (const std::string& data : answer.events()) {
    if (data == "[DONE]") continue;
    const Json event = Json::parse(data);
    if (event.contains("error")) break;
    if (!event["choices"].empty()) text += event["choices"][0]["text"].get<std::string>();
  }
  return text;
}

// Request number i of a fixed mix: greedy and sampled, short and long, with shared beginnings.
inline Json request(int i, int max_tokens) {
  static const std::vector<std::string> prompts = {
      "def add(a, b):",          "class Page", "The quick brown fox",
      "import os\nimport sys\n", "一二三",     "SELECT name FROM"};
  const auto n = prompts.size();
  std::string prompt = prompts[static_cast<size_t>(i) % n];
  // Every third one is long and shares its beginning with the others.
  if (i % 3 == 0) {
    std::string shared;
    for (int k = 0; k < 60; ++k) shared += fmt::format("value_{} = {}\n", k, k * k);
    prompt = shared + prompt;
  }
  return {{"prompt", prompt},
          {"max_tokens", max_tokens},
          {"temperature", i % 4 == 0 ? 0.0 : 1.0},
          {"seed", 100 + i},
          {"ignore_eos", true}};
}

class Serving : public ::testing::Test {
 protected:
  void TearDown() override { expect_no_report(); }

  void expect_no_report() {
    if (!server_) return;
    EXPECT_EQ(server_->sanitizer_reports(), std::vector<std::string>());
  }

  ServerUnderTest& start(std::vector<std::string> flags) {
    expect_no_report();  // of the one before
    flags.insert(flags.begin(), kEngine.begin(), kEngine.end());
    server_ = std::make_unique<ServerUnderTest>(kBin + "/lockstep-serve", flags);
    return *server_;
  }
  ServerUnderTest& server() { return *server_; }

  HttpAnswer ask(Json body, bool stream) {
    body["stream"] = stream;
    return server().ask(body.dump());
  }

  // A stream that has begun, with its client.
  std::unique_ptr<HttpClient> begin(Json body) {
    body["stream"] = true;
    auto client = std::make_unique<HttpClient>("127.0.0.1", server().port());
    client->send(HttpClient::request_text("POST", "/v1/completions", body.dump()));
    return client;
  }

  bool wait_for_phase(const std::string& phase) {
    return eventually([&] {
      const Json json = Json::parse(server().get("/lockstep/status"));
      for (const Json& rank : json["ranks"]) {
        if (!rank.is_object()) continue;
        for (const Json& slot : rank["slots"]) {
          if (slot["phase"] == phase) return true;
        }
      }
      return false;
    });
  }

  std::unique_ptr<ServerUnderTest> server_;
};

// How many requests a test sends: more in long lanes.
inline int requests_from_environment(int fallback) {
  const char* text = std::getenv("LOCKSTEP_SERVING_REQUESTS");
  return text == nullptr ? fallback : std::atoi(text);
}

}  // namespace lockstep::serve
