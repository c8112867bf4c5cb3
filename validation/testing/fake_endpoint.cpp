#include "validation/testing/fake_endpoint.h"

#include <httplib.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/base/error.h"

namespace lockstep::testing {
namespace {

using Json = nlohmann::json;

// Why the request is refused; empty when it is not.
std::string refusal(const FakeAnswers& answers, const Json& body) {
  if (answers.original_fields_only && body.contains("ignore_eos")) {
    return "Unrecognized request argument supplied: ignore_eos";
  }
  if (body.value("logprobs", 0) > answers.most_logprobs) {
    return "logprobs: at most " + std::to_string(answers.most_logprobs);
  }
  return {};
}

Json completion(const FakeAnswers& answers, const Json& body) {
  const auto mark = [&](int32_t id) {
    return (answers.original_fields_only ? "t" : "token_id:") + std::to_string(id);
  };
  std::vector<int32_t> history = body.at("prompt").get<std::vector<int32_t>>();
  Json lists = {{"tokens", Json::array()},
                {"token_logprobs", Json::array()},
                {"top_logprobs", Json::array()}};
  Json content = Json::array();
  std::string text;
  for (int i = 0; i < body.at("max_tokens").get<int>(); ++i) {
    const FakeToken token = answers.next(history);
    const double logprob = -0.1;
    history.push_back(token.id);
    text += std::to_string(token.id) + " ";
    lists["tokens"].push_back(mark(token.id));
    lists["token_logprobs"].push_back(logprob);
    lists["top_logprobs"].push_back(
        {{mark(token.id), logprob}, {mark(token.second), logprob - token.margin}});
    const Json first = {{"id", token.id}, {"token", "x"}, {"logprob", logprob}};
    const Json second = {{"id", token.second}, {"token", "y"}, {"logprob", logprob - token.margin}};
    content.push_back(first);
    content.back()["top_logprobs"] = {first, second};
  }
  Json logprobs = answers.chat_style_logprobs ? Json{{"content", content}} : lists;
  if (answers.most_logprobs == 0) logprobs = nullptr;
  return {{"choices", {{{"text", text}, {"logprobs", logprobs}}}}};
}

Json chat(const FakeAnswers& answers, const Json& body) {
  std::string text = answers.chat(body.at("messages").at(0).at("content"));
  const auto n = static_cast<int64_t>(text.size());
  const int64_t limit = std::min(answers.chat_max_tokens, n);
  text.resize(static_cast<size_t>(limit));
  return {{"choices",
           {{{"message", {{"content", text}}}, {"finish_reason", limit < n ? "length" : "stop"}}}},
          {"usage", {{"completion_tokens", limit}}}};
}

}  // namespace

struct FakeEndpoint::State {
  FakeAnswers answers;
  httplib::Server server;
  int port = 0;
  std::atomic<int> n_requests{0};
  std::thread thread;

  void serve(const char* path, Json (*make)(const FakeAnswers&, const Json&)) {
    server.Post(path, [this, make](const httplib::Request& request, httplib::Response& response) {
      ++n_requests;
      const Json body = Json::parse(request.body);
      if (const std::string why = refusal(answers, body); !why.empty()) {
        response.status = 400;
        return response.set_content(why, "text/plain");
      }
      response.set_content(make(answers, body).dump(), "application/json");
    });
  }
};

FakeEndpoint::FakeEndpoint(FakeAnswers answers) : state_(std::make_unique<State>()) {
  state_->answers = std::move(answers);
  state_->serve("/v1/completions", completion);
  state_->serve("/v1/chat/completions", chat);
  state_->port = state_->server.bind_to_any_port("127.0.0.1");
  LOCKSTEP_CHECK(state_->port > 0);
  state_->thread = std::thread([this] { state_->server.listen_after_bind(); });
}

FakeEndpoint::~FakeEndpoint() {
  state_->server.stop();
  state_->thread.join();
}

std::string FakeEndpoint::url() const {
  return "http://127.0.0.1:" + std::to_string(state_->port);
}

int FakeEndpoint::n_requests() const {
  return state_->n_requests;
}

}  // namespace lockstep::testing
