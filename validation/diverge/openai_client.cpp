#include "validation/diverge/openai_client.h"

#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/json_problem.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kIdMark = "token_id:";
constexpr size_t kShownAnswer = 300;  // bytes of a refusal that go into the message
constexpr int kOriginalTop = 5;       // log-probabilities that the original API gives
// Fields that others have added to the original API.
constexpr const char* kExtensions[] = {"ignore_eos", "return_tokens_as_token_ids"};

struct Url {
  std::string host_and_port;  // with "http://"
  std::string path;           // ends in /v1
};

Url parse_url(const std::string& text) {
  constexpr std::string_view kScheme = "http://";
  if (!text.starts_with(kScheme) || text.size() == kScheme.size()) {
    fail_with(ExitCode::usage, "{}: need http://HOST:PORT[/PATH]", text);
  }
  const size_t slash = std::min(text.find('/', kScheme.size()), text.size());
  Url url{text.substr(0, slash), text.substr(slash)};
  while (url.path.ends_with('/')) url.path.pop_back();
  if (!url.path.ends_with("/v1")) url.path += "/v1";
  return url;
}

Token token_of(const Json& entry, const std::string& text) {
  Token token{-1, text};
  if (entry.is_object() && entry.contains("id") && entry["id"].is_number_unsigned()) {
    token.id = entry["id"].get<int32_t>();
  } else if (text.starts_with(kIdMark)) {
    std::from_chars(text.data() + kIdMark.size(), text.data() + text.size(), token.id);
  }
  return token;
}

double number(const Json& value) {
  return value.is_number() ? value.get<double>() : std::nan("");
}

// {"content": [{"token", "logprob", "top_logprobs": [{"token", "logprob"}]}]}
std::vector<SideStep> steps_of_content(const Json& content) {
  std::vector<SideStep> steps;
  for (const Json& entry : content) {
    SideStep step;
    step.chosen = token_of(entry, entry.at("token").get<std::string>());
    for (const Json& top : entry.at("top_logprobs")) {
      step.top.push_back(
          {token_of(top, top.at("token").get<std::string>()), number(top.at("logprob"))});
    }
    if (!step.logprob_of(step.chosen)) {
      step.top.push_back({step.chosen, number(entry.at("logprob"))});
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

// {"tokens": [...], "token_logprobs": [...], "top_logprobs": [{token: logprob}]}
std::vector<SideStep> steps_of_lists(const Json& logprobs) {
  const Json& tokens = logprobs.at("tokens");
  std::vector<SideStep> steps;
  for (size_t i = 0; i < tokens.size(); ++i) {
    SideStep step;
    step.chosen = token_of({}, tokens.at(i).get<std::string>());
    for (const auto& [text, logprob] : logprobs.at("top_logprobs").at(i).items()) {
      step.top.push_back({token_of({}, text), number(logprob)});
    }
    if (!step.logprob_of(step.chosen)) {
      step.top.push_back({step.chosen, number(logprobs.at("token_logprobs").at(i))});
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

void sort_tops(std::vector<SideStep>& steps) {
  for (SideStep& step : steps) {
    std::stable_sort(step.top.begin(), step.top.end(),
                     [](const auto& a, const auto& b) { return a.logprob > b.logprob; });
  }
}

}  // namespace

struct OpenAiClient::State {
  Url url;
  std::string model;
  std::chrono::seconds timeout;
  int most_top = 1 << 20;
  bool extensions = true;
};

OpenAiClient::OpenAiClient(const std::string& url, const std::string& model,
                           std::chrono::seconds timeout)
    : state_(std::make_unique<State>()) {
  state_->url = parse_url(url);
  state_->model = model;
  state_->timeout = timeout;
}

OpenAiClient::~OpenAiClient() = default;

OpenAiClient::Answer OpenAiClient::post(const std::string& path, const std::string& body) const {
  const std::string where = state_->url.host_and_port + state_->url.path + path;
  httplib::Client client(state_->url.host_and_port);
  client.set_read_timeout(state_->timeout.count());
  client.set_connection_timeout(10);
  const auto answer = client.Post((state_->url.path + path).c_str(), body, "application/json");
  if (!answer) {
    fail_with(ExitCode::could_not_judge, "{}: no answer ({})", where,
              httplib::to_string(answer.error()));
  }
  return {answer->status, answer->body};
}

std::string OpenAiClient::accepted(const std::string& path, Answer answer) const {
  if (answer.status != 200) {
    fail_with(ExitCode::could_not_judge, "{}{}{}: status {}: {}", state_->url.host_and_port,
              state_->url.path, path, answer.status, answer.body.substr(0, kShownAnswer));
  }
  return std::move(answer.body);
}

bool OpenAiClient::give_way(const Answer& refusal) const {
  if (refusal.status != 400 && refusal.status != 422) return false;
  const auto names = [&](std::string_view field) {
    return refusal.body.find(field) != std::string::npos;
  };
  if (state_->extensions && std::ranges::any_of(kExtensions, names)) {
    state_->extensions = false;
    return true;
  }
  if (state_->most_top > 0 && names("logprobs")) {
    state_->most_top = state_->most_top > kOriginalTop ? kOriginalTop : 0;
    return true;
  }
  return false;
}

SideRun OpenAiClient::complete(const DivergePrompt& prompt, const std::vector<int32_t>& forced,
                               int max_tokens, int top) const {
  Json body = {{"max_tokens", max_tokens}, {"temperature", 0}, {"seed", 0}};
  if (!state_->model.empty()) body["model"] = state_->model;
  if (prompt.ids.empty()) {
    body["prompt"] = prompt.text;
  } else {
    std::vector<int32_t> ids = prompt.ids;
    ids.insert(ids.end(), forced.begin(), forced.end());
    body["prompt"] = ids;
  }
  Answer answer;
  do {
    body["logprobs"] = std::min(top, state_->most_top);
    if (state_->most_top == 0) body.erase("logprobs");
    for (const char* field : kExtensions) {
      if (state_->extensions) body[field] = true;
      if (!state_->extensions) body.erase(field);
    }
    answer = post("/completions", body.dump());
  } while (answer.status != 200 && give_way(answer));
  const std::string text = accepted("/completions", std::move(answer));
  try {
    const Json choice = Json::parse(text).at("choices").at(0);
    SideRun run;
    run.text = choice.at("text").get<std::string>();
    const Json logprobs = choice.value("logprobs", Json());
    if (logprobs.is_null()) return run;
    run.steps = logprobs.contains("content") ? steps_of_content(logprobs["content"])
                                             : steps_of_lists(logprobs);
    sort_tops(run.steps);
    return run;
  } catch (const Json::exception& error) {
    fail_with(ExitCode::could_not_judge, "{}: no completion of {} ({})", state_->url.host_and_port,
              prompt.name, json_problem(error));
  }
}

ChatAnswer OpenAiClient::ask(const std::string& question, int max_tokens) const {
  Json body = {{"messages", {{{"role", "user"}, {"content", question}}}},
               {"max_tokens", max_tokens},
               {"temperature", 0},
               {"seed", 0},
               {"chat_template_kwargs", {{"enable_thinking", false}}}};
  if (!state_->model.empty()) body["model"] = state_->model;
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = accepted("/chat/completions", post("/chat/completions", body.dump()));
  ChatAnswer answer;
  answer.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  try {
    const Json json = Json::parse(text);
    const Json& choice = json.at("choices").at(0);
    const Json& content = choice.at("message").at("content");
    if (content.is_string()) answer.text = content.get<std::string>();
    const Json& reason = choice.at("finish_reason");
    if (reason.is_string()) answer.finish_reason = reason.get<std::string>();
    if (json.contains("usage")) {
      answer.completion_tokens = json["usage"].at("completion_tokens").get<int64_t>();
    }
    return answer;
  } catch (const Json::exception& error) {
    fail_with(ExitCode::could_not_judge, "{}: not a chat completion ({})",
              state_->url.host_and_port, json_problem(error));
  }
}

}  // namespace lockstep
