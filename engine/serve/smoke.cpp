#include "engine/serve/smoke.h"

#include <fmt/core.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/serve/http_client.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

// A red and white chequerboard of 64 x 64 pixels.
constexpr const char* kPicture =
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAY0lEQVR42u3ZwQkAMAgDQMdx/yk6TkfoDBEKhZ74Dt4z"
    "WDuc1R3t7fwCAAAAAAAAAAAAABgDXjsozQcAAAAAAAAAAAAAmAM0MgAAAAAAAAAAAAD/AY0MAAAAAAAAAAAA4DvAAV+3"
    "QdL141YhAAAAAElFTkSuQmCC";

[[noreturn]] void expect_failed(const std::string& what, const HttpAnswer& answer) {
  fail("{} (status {}: {})", what, answer.status, answer.body.substr(0, 200));
}

class Smoke {
 public:
  explicit Smoke(const SmokeOptions& options) : options_(options) {
    url_ = parse_http_url(options.url);
    // Both http://HOST:PORT and http://HOST:PORT/v1 name the same endpoint.
    if (url_.path.ends_with("/v1")) url_.path.resize(url_.path.size() - 3);
    const HttpAnswer models = ask("GET", "/v1/models", "");
    const Json json = Json::parse(models.body, nullptr, false);
    const bool has_models = json.is_object() && json.contains("data") && json["data"].is_array() &&
                            !json["data"].empty();
    if (!has_models) expect_failed(options.url + ": lists no model at /v1/models", models);
    model_ = options.model.empty() ? json["data"][0].value("id", "") : options.model;
  }

  Json chat(const std::string& text, int max_tokens) const {
    return {{"model", model_},
            {"messages", {{{"role", "user"}, {"content", text}}}},
            {"max_tokens", max_tokens},
            {"temperature", 0},
            {"seed", 7}};
  }

  Json picture_chat(int max_tokens) const {
    Json body = chat("", max_tokens);
    body["messages"][0]["content"] = {{{"type", "image_url"}, {"image_url", {{"url", kPicture}}}},
                                      {{"type", "text"}, {"text", "What is in this picture?"}}};
    return body;
  }

  HttpAnswer ask(const std::string& method, const std::string& path,
                 const std::string& body) const {
    HttpClient client(url_.host, url_.port);
    return client.request(method, url_.path + path, body, headers());
  }

  HttpAnswer complete(const Json& body, const std::string& path = "/v1/chat/completions") const {
    const HttpAnswer answer = ask("POST", path, body.dump());
    if (answer.status != 200 || !answer.complete) expect_failed("no whole answer", answer);
    return answer;
  }

  // Text of a chat answer that is not empty.
  std::string text_of(const HttpAnswer& answer) const {
    const Json json = Json::parse(answer.body, nullptr, false);
    if (!json.is_object() || !json.contains("choices")) expect_failed("no choices", answer);
    const Json& message = json["choices"][0]["message"];
    std::string text;
    for (const char* key : {"reasoning_content", "content"}) {
      if (message.contains(key) && message[key].is_string())
        text += message[key].get<std::string>();
    }
    return text;
  }

  std::string finish_of(const HttpAnswer& answer) const {
    const Json json = Json::parse(answer.body, nullptr, false);
    return json["choices"][0].value("finish_reason", "");
  }

  std::string streamed_text(const HttpAnswer& answer) const {
    std::string text;
    for (const std::string& data : answer.events()) {
      const Json event = Json::parse(data, nullptr, false);
      if (!event.is_object() || !event.contains("choices") || event["choices"].empty()) continue;
      const Json& delta = event["choices"][0]["delta"];
      for (const char* key : {"reasoning_content", "content"}) {
        if (delta.contains(key) && delta[key].is_string()) text += delta[key].get<std::string>();
      }
    }
    return text;
  }

  // Sends a request and leaves after `time`, or as soon as the answer holds `text`.
  void leave(const Json& body, const std::string& text, milliseconds time) const {
    HttpClient client(url_.host, url_.port);
    client.send(HttpClient::request_text("POST", url_.path + "/v1/chat/completions", body.dump(),
                                         headers()));
    if (!client.wait_for(text, time) && time > std::chrono::seconds(10)) {
      fail("the stream did not begin");
    }
  }

  // The service must answer as before, whatever was done to it.
  void still_answers() const {
    const HttpAnswer again = complete(chat("Say one word.", 4));
    const std::string text = text_of(again);
    if (baseline_.empty()) baseline_ = text;
    if (text != baseline_) fail("answers '{}' where it said '{}' before", text, baseline_);
  }

 private:
  HttpClient::Headers headers() const {
    if (options_.api_key.empty()) return {};
    return {{"Authorization", "Bearer " + options_.api_key}};
  }

  SmokeOptions options_;
  HttpUrl url_;
  std::string model_;
  mutable std::string baseline_;
};

struct Skip {
  std::string why;
};

struct Scenario {
  const char* name;
  std::function<std::string(const Smoke&)> run;  // returns a note; throws Error when it fails
};

std::string long_text(int n_words) {
  std::string text;
  for (int i = 0; i < n_words; ++i) text += fmt::format("word{} ", i * 7919 % 1009);
  return text;
}

std::string plain(const Smoke& smoke) {
  smoke.still_answers();
  return "";
}

std::string streamed(const Smoke& smoke) {
  Json body = smoke.chat("Count to five.", 24);
  const std::string whole = smoke.text_of(smoke.complete(body));
  body["stream"] = true;
  const HttpAnswer answer = smoke.complete(body);
  if (answer.events().empty() || answer.events().back() != "[DONE]") {
    expect_failed("the stream does not end with [DONE]", answer);
  }
  if (smoke.streamed_text(answer) != whole)
    fail("the stream's text is not that of the whole answer");
  return "same text as without stream";
}

std::string unseeded(const Smoke& smoke) {
  Json body = smoke.chat("Tell a story.", 16);
  body.erase("seed");
  body["temperature"] = 1.0;
  if (smoke.text_of(smoke.complete(body)).empty()) fail("an empty answer");
  smoke.complete(body);
  return "";
}

std::string cut_stream(const Smoke& smoke) {
  Json body = smoke.chat("Write a long story.", 512);
  body["stream"] = true;
  smoke.leave(body, "data: ", std::chrono::seconds(60));
  smoke.still_answers();
  return "";
}

std::string cut_prefill(const Smoke& smoke) {
  Json body = smoke.chat(long_text(400), 16);
  body["stream"] = true;
  smoke.leave(body, "data: ", milliseconds(5));
  smoke.still_answers();
  return "";
}

std::string client_time_out(const Smoke& smoke) {
  smoke.leave(smoke.chat("Write a long story.", 512), "choices", milliseconds(200));
  smoke.still_answers();
  return "";
}

std::string stop_by_length(const Smoke& smoke) {
  Json body = smoke.chat("Write a long story.", 2);
  const HttpAnswer answer = smoke.complete(body);
  if (smoke.finish_of(answer) != "length") expect_failed("finish_reason is not length", answer);
  const Json usage = Json::parse(answer.body)["usage"];
  if (usage.value("completion_tokens", 0) != 2) expect_failed("not 2 completion tokens", answer);
  return "2 tokens";
}

// Stops at a character that the same request is known to produce.
std::string early_stop(const Smoke& smoke) {
  Json body = smoke.chat("Write a long story.", 32);
  body["chat_template_kwargs"] = {{"enable_thinking", false}};
  const std::string whole = smoke.text_of(smoke.complete(body));
  if (whole.size() < 4) throw Skip{"the model says too little to stop it early"};
  size_t at = whole.size() / 2;
  while (at < whole.size() && static_cast<unsigned char>(whole[at]) >= 0x80) ++at;
  if (at == whole.size()) throw Skip{"no plain character in the model's answer"};
  const std::string stop(1, whole[at]);
  body["stop"] = stop;
  const HttpAnswer answer = smoke.complete(body);
  if (smoke.finish_of(answer) != "stop") expect_failed("finish_reason is not stop", answer);
  const std::string expected = whole.substr(0, whole.find(stop));
  if (smoke.text_of(answer) != expected) {
    fail("text up to the stop string is '{}', not '{}'", smoke.text_of(answer), expected);
  }
  return "";
}

std::string with_picture(const Smoke& smoke) {
  smoke.complete(smoke.picture_chat(8));
  return "";
}

std::string cut_picture_stream(const Smoke& smoke) {
  Json body = smoke.picture_chat(256);
  body["stream"] = true;
  smoke.leave(body, "data: ", std::chrono::seconds(60));
  smoke.still_answers();
  return "";
}

std::string anthropic(const Smoke& smoke) {
  Json body = smoke.chat("Say one word.", 8);
  body.erase("seed");
  const Json whole = Json::parse(smoke.complete(body, "/v1/messages").body, nullptr, false);
  if (!whole.is_object() || whole.value("type", "") != "message")
    fail("no message: {}", whole.dump());
  body["stream"] = true;
  const HttpAnswer stream = smoke.complete(body, "/v1/messages");
  if (stream.body.find("event: message_stop") == std::string::npos) {
    expect_failed("the stream does not end with message_stop", stream);
  }
  return "";
}

std::string follow_up(const Smoke& smoke) {
  Json body = smoke.chat(long_text(700) + "What was that?", 8);
  const std::string said = smoke.text_of(smoke.complete(body));
  body["messages"].push_back({{"role", "assistant"}, {"content", said}});
  body["messages"].push_back({{"role", "user"}, {"content", "And again?"}});
  const HttpAnswer answer = smoke.complete(body);
  const Json usage = Json::parse(answer.body)["usage"];
  int64_t cached = 0;
  if (usage.contains("prompt_tokens_details") && usage["prompt_tokens_details"].is_object()) {
    cached = usage["prompt_tokens_details"].value("cached_tokens", int64_t{0});
  }
  const HttpAnswer repeated = smoke.complete(body);
  if (smoke.text_of(repeated) != smoke.text_of(answer))
    fail("the same follow-up has another answer");
  return fmt::format("{} of {} prompt tokens cached", cached, usage.value("prompt_tokens", 0));
}

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = {
      {"plain request", plain},
      {"streamed request", streamed},
      {"sampling without a seed", unseeded},
      {"stream cut in the middle", cut_stream},
      {"prefill cut in the middle", cut_prefill},
      {"client time-out", client_time_out},
      {"stop by length", stop_by_length},
      {"early stop", early_stop},
      {"request with a picture", with_picture},
      {"picture stream cut in the middle", cut_picture_stream},
      {"Anthropic messages", anthropic},
      {"follow-up question", follow_up},
  };
  return all;
}

}  // namespace

std::vector<SmokeResult> run_smoke(const SmokeOptions& options) {
  const Smoke smoke(options);
  std::vector<SmokeResult> results;
  for (const Scenario& scenario : scenarios()) {
    SmokeResult result{scenario.name, "PASS", ""};
    const bool about_pictures = result.scenario.find("picture") != std::string::npos;
    const bool about_anthropic = result.scenario.find("Anthropic") != std::string::npos;
    try {
      if (about_pictures && !options.images) throw Skip{"--no-images"};
      if (about_anthropic && !options.anthropic) throw Skip{"--no-anthropic"};
      result.note = scenario.run(smoke);
    } catch (const Skip& skip) {
      result.verdict = "SKIPPED";
      result.note = skip.why;
    } catch (const Error& error) {
      result.verdict = "FAIL";
      result.note = error.what();
    } catch (const Json::exception& error) {
      result.verdict = "FAIL";
      result.note = fmt::format("an answer without the fields it should have: {}", error.what());
    }
    results.push_back(result);
  }
  return results;
}

}  // namespace lockstep::serve
