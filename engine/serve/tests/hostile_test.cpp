// The whole server and clients that mean no good: whatever they send, both ranks stay, and others
// get their answers. Runs under AddressSanitizer and ThreadSanitizer in ci/lanes/serve.sh.
#include <fmt/core.h>
#include <signal.h>
#include <sys/socket.h>

#include <map>

#include "engine/serve/tests/serving_test_support.h"

namespace lockstep::serve {
namespace {

class Hostile : public Serving {
 protected:
  void SetUp() override {
    start({"--header-timeout=3", "--reader-timeout=2", "--reader-buffer=64", "--queue=1000",
           "--max-body=8"});
    expected_ = text_of(ask(kind_request(), false), false);
  }

  // Whatever came before: no halt, the same answer as at first, and an orderly end.
  void TearDown() override {
    EXPECT_EQ(text_of(ask(kind_request(), false), false), expected_);
    const Json status = Json::parse(server().get("/lockstep/status"));
    EXPECT_TRUE(status["halts"].empty()) << status["halts"].dump();
    EXPECT_EQ(status["starts"], 1);
    server().signal(SIGTERM);
    EXPECT_EQ(server().wait_for_exit(), 0);
    expect_no_report();
  }

  static Json kind_request() { return request(2, 6); }

  HttpAnswer send_raw(const std::string& text) {
    HttpClient client = server().client();
    client.send(text);
    return client.receive();
  }
  int status_of(const std::string& body, const std::string& path = "/v1/completions") {
    return server().ask(body, path).status;
  }

  std::string expected_;
};

const std::vector<std::string> kPaths = {
    "/v1/completions", "/v1/chat/completions",     "/v1/messages", "/v1/responses", "/tokenize",
    "/detokenize",     "/v1/messages/count_tokens"};

// A body that is right for `path`.
Json right_body(const std::string& path) {
  if (path == "/v1/completions") return {{"prompt", "a"}, {"max_tokens", 2}};
  if (path == "/v1/responses") return {{"input", "a"}, {"max_output_tokens", 2}};
  if (path == "/tokenize") return {{"prompt", "a"}};
  if (path == "/detokenize") return {{"tokens", {1, 2}}};
  return {{"model", "m"}, {"max_tokens", 2}, {"messages", {{{"role", "user"}, {"content", "a"}}}}};
}

TEST_F(Hostile, EveryFieldInEveryWrongShape) {
  const std::vector<std::string> fields = {"model",
                                           "prompt",
                                           "messages",
                                           "input",
                                           "tokens",
                                           "max_tokens",
                                           "stream",
                                           "stop",
                                           "stop_sequences",
                                           "tools",
                                           "tool_choice",
                                           "logit_bias",
                                           "logprobs",
                                           "top_logprobs",
                                           "response_format",
                                           "thinking",
                                           "system",
                                           "temperature",
                                           "seed",
                                           "n",
                                           "stream_options",
                                           "reasoning_effort",
                                           "chat_template_kwargs",
                                           "metadata"};
  const std::vector<Json> shapes = {nullptr,
                                    true,
                                    -1,
                                    1e300,
                                    INT64_MIN,
                                    "",
                                    "\xed\xa0\x80" /* no UTF-8 */,
                                    Json::array(),
                                    Json::object(),
                                    {{"a", {{"b", nullptr}}}},
                                    {nullptr, {1, {2, {3}}}}};
  std::map<int, int> seen;
  int n = 0;
  for (const std::string& path : kPaths) {
    for (const std::string& field : fields) {
      for (const Json& shape : shapes) {
        if (++n % 4 != 0) continue;  // a quarter: neighbours differ in field and path
        Json body = right_body(path);
        body[field] = shape;
        const std::string text = body.dump(-1, ' ', false, Json::error_handler_t::ignore);
        const HttpAnswer answer = server().ask(text, path);
        EXPECT_TRUE(answer.status == 200 || answer.status == 400)
            << answer.status << ' ' << path << ' ' << text;
        ++seen[answer.status];
        const bool streams = answer.header("content-type") == "text/event-stream";
        EXPECT_TRUE(streams || Json::accept(answer.body)) << answer.body;
      }
    }
  }
  EXPECT_GT(seen[200], 50);
  EXPECT_GT(seen[400], 50);
}

TEST_F(Hostile, BodiesThatCostMoreToReadThanToSend) {
  const auto wide = [](int n) {
    std::string text = "{";
    for (int i = 0; i < n; ++i) text += fmt::format("{}\"{}\":1", i == 0 ? "" : ",", i);
    return text + "}";
  };
  const std::string half = R"({"prompt":"a","max_tokens":1,)";
  EXPECT_EQ(status_of(half + "\"logit_bias\":" + wide(200000) + "}"), 400);
  EXPECT_EQ(status_of(half + "\"unknown\":[" + wide(200000) + "]}"), 400);
  EXPECT_EQ(status_of(half + "\"x\":" + std::string(2000000, '[')), 400);
  EXPECT_EQ(status_of(half + "\"stop\":\"" + std::string(2000000, 'a') + "\"}"), 400);
  std::string stops;
  for (int i = 0; i < 5000; ++i) stops += fmt::format("{}\"s{}\"", i == 0 ? "" : ",", i);
  EXPECT_EQ(status_of(half + "\"stop\":[" + stops + "]}"), 400);
  EXPECT_EQ(status_of(R"({"prompt":"a","max_tokens":1000000000000})"), 400);
  EXPECT_EQ(status_of(R"({"prompt":"a","max_tokens":1,"prompt":"b","prompt":5})"), 400);
  EXPECT_EQ(status_of(Json{{"prompt", std::string(1000000, 'a')}}.dump()), 400);
  EXPECT_EQ(status_of("{\"prompt\":\"\xff\xfe\",\"max_tokens\":1}"), 400);
  EXPECT_EQ(status_of(R"({"prompt":"\ud800","max_tokens":1})"), 400);
  // 20,000 x 20,000 pixels in 69 bytes: refused from its header.
  const std::string bomb =
      "iVBORw0KGgoAAAANSUhEUgAATiAAAE4gCAIAAABsEtFuAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmC"
      "C";
  const Json part = {{"type", "image_url"},
                     {"image_url", {{"url", "data:image/png;base64," + bomb}}}};
  const Json message = {{"role", "user"}, {"content", {part}}};
  EXPECT_EQ(
      status_of(Json{{"messages", {message}}, {"max_tokens", 1}}.dump(), "/v1/chat/completions"),
      400);
}

TEST_F(Hostile, SizesAndFloodsAndDrips) {
  const std::string hundred_mb(100 << 20, 'x');
  HttpClient large = server().client();
  large.send(HttpClient::request_text("POST", "/v1/completions", hundred_mb));
  EXPECT_EQ(large.receive().status, 413);
  std::string flood = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 5000; ++i) flood += fmt::format("X-{}: {}\r\n", i, i);
  EXPECT_EQ(send_raw(flood + "\r\n").status, 431);
  HttpClient dripping = server().client();
  dripping.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-");
  HttpClient half = server().client();
  half.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{");
  EXPECT_TRUE(dripping.wait_for_close());
  EXPECT_TRUE(half.wait_for_close());
}

TEST_F(Hostile, FiveHundredConnections) {
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 500; ++i) {
    clients.push_back(std::make_unique<HttpClient>("127.0.0.1", server().port()));
  }
  EXPECT_EQ(server().client().receive().status, 503);
  const std::string text =
      HttpClient::request_text("POST", "/v1/completions", R"({"prompt":"a","max_tokens":1})");
  for (size_t i = 0; i < clients.size(); ++i) {
    // Every fifth one wants an answer, the others stay silent or leave.
    if (i % 5 == 0) clients[i]->send(text);
    if (i % 5 == 1) clients[i]->send(text.substr(0, text.size() / 2));
    if (i % 5 == 2) clients[i]->close();
  }
  for (size_t i = 0; i < clients.size(); i += 5) EXPECT_EQ(clients[i]->receive().status, 200) << i;
}

TEST_F(Hostile, ReadersThatStall) {
  std::vector<std::unique_ptr<HttpClient>> stalled;
  // Much to send for every token.
  Json body = right_body("/v1/chat/completions");
  body.update({{"max_tokens", 2000}, {"ignore_eos", true}, {"stream", true}});
  body.update({{"logprobs", true}, {"top_logprobs", 20}});
  for (int i = 0; i < 3; ++i) {
    auto client = std::make_unique<HttpClient>("127.0.0.1", server().port());
    client->shrink_receive_buffer();
    client->send(HttpClient::request_text("POST", "/v1/chat/completions", body.dump()));
    stalled.push_back(std::move(client));
  }
  ASSERT_TRUE(
      eventually([&] { return server().log_lines("\"outcome\":\"slow_reader\"").size() >= 3; }));
}

// Half-closed, pipelined, reset in the middle, a body in single bytes.
TEST_F(Hostile, ConnectionsThatBehaveOddly) {
  const std::string text = HttpClient::request_text(
      "POST", "/v1/completions", R"({"prompt":"a","max_tokens":200,"ignore_eos":true})");
  HttpClient half = server().client();
  half.send(text);
  ::shutdown(half.fd(), SHUT_WR);
  EXPECT_TRUE(half.wait_for_close()) << "who closes its side is gone";
  HttpClient many = server().client();
  for (int i = 0; i < 20; ++i) many.send(HttpClient::request_text("GET", "/v1/models", ""));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(many.receive().status, 200) << i;
  for (int i = 0; i < 20; ++i) {
    HttpClient reset = server().client();
    reset.send(text);
    const linger at_once{1, 0};
    ::setsockopt(reset.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  HttpClient chunked = server().client();
  chunked.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (const char c : std::string(R"({"prompt":"a","max_tokens":1})")) {
    chunked.send(fmt::format("1\r\n{}\r\n", c));
  }
  chunked.send("0\r\n\r\n");
  EXPECT_EQ(chunked.receive().status, 200);
}

// Right requests with random damage: an answer or a complaint, or the connection ends.
TEST_F(Hostile, DamagedRequests) {
  const int n = requests_from_environment(100);
  uint64_t state = 7;
  const auto random = [&state] { return (state = state * 6364136223846793005u + 1) >> 33; };
  for (int i = 0; i < n; ++i) {
    const std::string& path = kPaths[random() % kPaths.size()];
    std::string text = HttpClient::request_text("POST", path, right_body(path).dump());
    const size_t n_hits = 1 + random() % 4;
    for (size_t hit = 0; hit < n_hits; ++hit) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, random() % 9);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
          break;
        default:
          text.resize(at + 1);
      }
    }
    HttpClient client = server().client();
    client.send(text);
    const HttpAnswer answer = client.receive(std::chrono::milliseconds(200));
    EXPECT_TRUE(answer.status == 0 || (answer.status >= 200 && answer.status < 500) ||
                answer.status == 501)
        << answer.status << ' ' << text;
  }
}

}  // namespace
}  // namespace lockstep::serve
