// What ranks answer over HTTP is what `lockstep generate` says, byte for byte: streamed or whole,
// from the cache or not, alone or beside another, on one rank or two; and two ranks agree on every
// round.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"
#include "engine/rank/http/tests/served_ranks.h"
#include "engine/text/reasoning.h"
#include "engine/text/tool_parser.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using testing::chat_body;
using testing::RankAnswer;
using testing::ServedRanks;

const std::string kBin = LOCKSTEP_BIN_DIR;
const std::string kModel = std::string(LOCKSTEP_GOLDEN_DIR) + "/tiny-qwen3_5";

struct Asked {
  std::string path;
  Json body;
};

// Requests of both endpoints with seeds; every third repeats an earlier prompt, so that the prefix
// cache serves it.
std::vector<Asked> mixed_requests(int count) {
  const std::string filler = read_text_file(std::string(LOCKSTEP_SOURCE_DIR) + "/run");
  std::vector<Asked> requests;
  for (int i = 0; i < count; ++i) {
    const int subject = i % 3 == 2 ? i - 2 : i;
    Json body = {{"seed", 100 + i}, {"max_tokens", 8 + i % 24}, {"temperature", (i % 4) * 0.4}};
    if (i % 2 == 1) body["stream"] = true;
    if (i % 5 == 3) body["stop"] = {"\n\n", "e "};
    if (i % 7 == 4) body["ignore_eos"] = true;
    const size_t length = 100 + static_cast<size_t>(subject % 4) * 500;
    const std::string text = filler.substr(0, std::min(filler.size(), length)) + "\n# part " +
                             std::to_string(subject) + "\n";
    if (subject % 2 == 0) {
      body["prompt"] = text;
      requests.push_back({"/v1/completions", std::move(body)});
    } else {
      body["messages"] = Json::array({{{"role", "user"}, {"content", text}}});
      if (subject % 4 == 1) body["chat_template_kwargs"] = {{"enable_thinking", false}};
      requests.push_back({"/v1/chat/completions", std::move(body)});
    }
  }
  return requests;
}

// The same through `lockstep generate`: texts in order.
std::vector<std::string> generate(const std::vector<Asked>& requests) {
  const TempDir folder;
  std::string jobs;
  for (size_t i = 0; i < requests.size(); ++i) {
    Json job = {{"name", "r" + std::to_string(i)}};
    if (requests[i].path == "/v1/completions") {
      job.update(requests[i].body);
      job.erase("stream");
    } else {
      job["chat"] = requests[i].body;
      if (job["chat"].contains("ignore_eos")) job["ignore_eos"] = true;
    }
    jobs += job.dump() + "\n";
  }
  const std::string file = (folder.path() / "jobs.jsonl").string();
  const std::string out = (folder.path() / "out").string();
  write_file_atomically(file, jobs);
  const ProcessResult made =
      run_process({kBin + "/lockstep-generate", "--model", kModel, "--jobs", file, "--out", out,
                   "--tp", "1", "--prefix-cache", "0", "--prefill-grid", "64"});
  EXPECT_EQ(made.exit_code, 0) << made.stderr_text;
  std::vector<std::string> texts;
  std::istringstream lines(read_text_file(out + "/results.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    texts.push_back(Json::parse(line)["text"].get<std::string>());
  }
  return texts;
}

// The text that an answer shows, reasoning first.
struct Shown {
  std::string reasoning;
  std::string content;
  bool operator==(const Shown&) const = default;
};

Shown shown_of(const Json& choice) {
  if (choice.contains("text")) return {"", choice["text"].get<std::string>()};
  const Json& message = choice.contains("message") ? choice["message"] : choice["delta"];
  Shown shown;
  if (message.contains("reasoning_content")) {
    shown.reasoning = message["reasoning_content"].get<std::string>();
  }
  if (message.contains("content") && message["content"].is_string()) {
    shown.content = message["content"].get<std::string>();
  }
  return shown;
}

Shown read_answer(const std::string& body, bool stream) {
  if (!stream) return shown_of(Json::parse(body)["choices"][0]);
  Shown all;
  std::istringstream lines(body);
  bool done = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "data: [DONE]") done = true;
    if (line.rfind("data: {", 0) != 0) continue;
    const Shown part = shown_of(Json::parse(line.substr(6))["choices"][0]);
    all.reasoning += part.reasoning;
    all.content += part.content;
  }
  EXPECT_TRUE(done) << body;
  return all;
}

Shown expected_of(const Asked& asked, const std::string& text) {
  if (asked.path == "/v1/completions") return {"", text};
  const bool thinks = !asked.body.contains("chat_template_kwargs");
  const ReasoningDelta split = split_reasoning(text, thinks, false);
  return {split.reasoning, split.content};
}

class Equality : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(Equality, AnswersAreWhatGenerateSays) {
  const auto [n_ranks, n_slots] = GetParam();
  static const std::vector<Asked> requests = mixed_requests(50);
  static const std::vector<std::string> texts = generate(requests);
  ASSERT_EQ(texts.size(), requests.size());
  ServedRanks ranks(n_ranks, {"--slots", std::to_string(n_slots), "--prefill-grid=64"});
  std::vector<RankAnswer> answers(requests.size());
  std::vector<std::thread> clients;
  std::atomic<size_t> next{0};
  for (int client = 0; client < n_slots; ++client) {
    clients.emplace_back([&] {
      for (size_t i = next++; i < requests.size(); i = next++) {
        answers[i] = ranks.ask(requests[i].path, requests[i].body.dump(), i + 1);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(answers[i].status, 200) << answers[i].body;
    const bool stream = requests[i].body.contains("stream");
    EXPECT_EQ(read_answer(answers[i].body, stream), expected_of(requests[i], texts[i])) << i;
  }
  const Json status = Json::parse(ranks.get("/lockstep/status").body);
  EXPECT_GT(status["tokens"]["cached"].get<int64_t>(), 0);
  EXPECT_GT(status["accepted"].get<int64_t>(), 0);
  for (int rank = 1; rank < n_ranks; ++rank) {
    EXPECT_EQ(ranks.round_log(rank), ranks.round_log(0));
  }
  for (int rank = 0; rank < n_ranks; ++rank) EXPECT_EQ(ranks.end(rank), 0) << ranks.log(rank);
}

INSTANTIATE_TEST_SUITE_P(RanksAndSlots, Equality,
                         ::testing::Values(std::pair{1, 1}, std::pair{1, 2}, std::pair{2, 1},
                                           std::pair{2, 2}));

}  // namespace
}  // namespace lockstep
