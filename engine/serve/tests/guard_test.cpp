// What the front lets in: keys, hosts, sizes, and clients that mean no good.
#include <fmt/core.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/base/mapped_file.h"
#include "engine/serve/tests/proxy_test_support.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::json;

int open_files(int pid) {
  int n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid))) {
    n += entry.path().empty() ? 0 : 1;
  }
  return n;
}

class Guard : public ProxyTest {
 protected:
  HttpAnswer send_raw(const std::string& text) {
    HttpClient client = server().client();
    client.send(text);
    return client.receive();
  }
  void expect_alive() { EXPECT_EQ(server().ask(R"({"n":1})").status, 200) << server().log(); }
  TempDir folder_;
};

TEST_F(Guard, KeysOpenTheApiButNotThePage) {
  const std::string file = folder_.path() / "keys";
  write_file_atomically(file, std::string("sesame\nother\n"));
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  start({"--api-key-file=" + file});
  const HttpAnswer refused = server().ask(R"({"n":1})");
  EXPECT_EQ(refused.status, 401);
  EXPECT_NE(refused.body.find("authentication_error"), std::string::npos);
  const auto with = [&](const char* name, const char* value) {
    return server()
        .client()
        .request("POST", "/v1/completions", R"({"n":1})", {{name, value}})
        .status;
  };
  EXPECT_EQ(with("Authorization", "Bearer sesame"), 200);
  EXPECT_EQ(with("Authorization", "bearer other"), 200);
  EXPECT_EQ(with("x-api-key", "sesame"), 200);
  EXPECT_EQ(with("Authorization", "Bearer sesam"), 401);
  EXPECT_EQ(with("Authorization", "sesame"), 401);
  EXPECT_EQ(with("x-api-key", ""), 401);
  EXPECT_EQ(server().client().request("GET", "/").status, 200);
  EXPECT_EQ(server().client().request("GET", "/health").status, 200);
  for (const char* path : {"/metrics", "/lockstep/status", "/v1/models", "/nothing"}) {
    EXPECT_EQ(server().client().request("GET", path).status, 401) << path;
  }
  EXPECT_EQ(server().log().find("sesame"), std::string::npos) << "keys are not logged";
}

TEST_F(Guard, OtherMachinesNeedAKeyOrAnExplicitYes) {
  const ProcessResult refused =
      run_process({program_, "--model=fake", "--rank-program=" + fake_rank_, "--host=0.0.0.0"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.stderr_text.find("--api-key-file"), std::string::npos) << refused.stderr_text;
  start({"--host=0.0.0.0", "--open-to-anyone"});
  EXPECT_EQ(count("\"event\":\"warning\""), 1u);
}

TEST_F(Guard, WithoutAKeyOtherOriginsAndNamesAreRefused) {
  start();
  const auto with = [&](const HttpClient::Headers& headers) {
    std::string text = "POST /v1/completions HTTP/1.1\r\nContent-Length: 7\r\n";
    for (const auto& [name, value] : headers) text += name + ": " + value + "\r\n";
    return send_raw(text + "\r\n{\"n\":1}").status;
  };
  EXPECT_EQ(with({{"Host", "localhost:8000"}}), 200);
  EXPECT_EQ(with({{"Host", "localhost:8000"}, {"Origin", "http://localhost:8000"}}), 200);
  EXPECT_EQ(with({{"Host", "[::1]:8000"}}), 200);
  EXPECT_EQ(with({{"Host", "localhost:8000"}, {"Origin", "http://evil.example"}}), 403);
  EXPECT_EQ(with({{"Host", "localhost:8000"}, {"Origin", "null"}}), 403);
  EXPECT_EQ(with({{"Host", "evil.example:8000"}}), 403);
}

TEST_F(Guard, LargeBodiesAreRefusedByName) {
  start({"--max-body=1"});
  // Refused from its header, before it is sent.
  const HttpAnswer promised = send_raw(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 104857600\r\n\r\n");
  EXPECT_EQ(promised.status, 413);
  // All of it sent regardless.
  const std::string hundred_mb(100 << 20, 'x');
  HttpClient client = server().client();
  client.send(HttpClient::request_text("POST", "/v1/completions", hundred_mb));
  EXPECT_EQ(client.receive().status, 413);
  // In chunks, without a promise.
  HttpClient chunked = server().client();
  chunked.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
      "Transfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "10000\r\n" + std::string(0x10000, 'y') + "\r\n";
  for (int i = 0; i < 20 && chunked.send(chunk); ++i) {
  }
  EXPECT_EQ(chunked.receive().status, 413);
  EXPECT_EQ(server().ask(std::string(1 << 20, ' ')).status, 400) << "exactly the limit is read";
  expect_alive();
}

// Closing while a client writes would take the answer back.
TEST_F(Guard, ARefusedClientMayWriteForLong) {
  start({"--max-body=1"});
  HttpClient client = server().client();
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 104857600\r\n\r\n");
  const std::string piece(1 << 20, 'x');
  for (int i = 0; i < 30; ++i) {
    EXPECT_TRUE(client.send(piece)) << i;
    ::usleep(100000);
  }
  EXPECT_EQ(client.receive().status, 413);
}

TEST_F(Guard, ManyLargeBodiesShareABudget) {
  start({"--max-body=8", "--body-budget=10"});
  HttpClient first = server().client();
  first.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n");
  ASSERT_TRUE(eventually([&] {
    return send_raw(
               "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
               "Content-Length: 8000000\r\n\r\n")
               .status == 503;
  }));
  first.close();
  EXPECT_TRUE(eventually([&] { return server().ask(std::string(8000000, ' ')).status == 400; }));
}

TEST_F(Guard, ExpectContinueIsAnswered) {
  start();
  HttpClient client = server().client();
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
      "Content-Length: 7\r\n\r\n");
  ::usleep(100000);
  client.send("{\"n\":1}");
  EXPECT_EQ(client.receive().status, 200);
}

TEST_F(Guard, WhatIsNoHttpIsRefused) {
  start();
  const std::vector<std::string> garbage = {
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
      "GET\r\n\r\n",
      "\xff\xfe\xfd\r\n\r\n",
      "GET / HTTP/9.9\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      "GET / HTTP/1.1\r\nbad header\r\n\r\n",
      std::string(1000, '\0') + "\r\n\r\n"};
  for (const std::string& text : garbage) {
    const int status = send_raw(text).status;
    EXPECT_TRUE(status == 400 || status == 0) << status << ' ' << text;
  }
  expect_alive();
}

// As RFC 9110 and 9112 say, where clients and programs between them rely on it.
TEST_F(Guard, TheStandardsOddFormsAreTaken) {
  start();
  const std::string head = "Host: localhost\r\nConnection: close\r\n";
  const std::string post = "POST /v1/completions HTTP/1.1\r\n" + head;
  const std::string body = "Content-Length: 7\r\n\r\n{\"n\":1}";
  EXPECT_EQ(send_raw("\r\n\r\n" + post + body).status, 200) << "empty lines before a request";
  EXPECT_EQ(send_raw("POST http://localhost:1/v1/completions HTTP/1.1\r\n" + head + body).status,
            200);
  EXPECT_EQ(send_raw("GET http://127.0.0.1 HTTP/1.1\r\n" + head + "\r\n").status, 200);
  EXPECT_EQ(send_raw(post + "Transfer-Encoding: chunked\r\n\r\n2;a=b\r\n{\"\r\n5\r\nn\":1}\r\n"
                            "0\r\nX-Trailer: 1\r\n\r\n")
                .status,
            200);
  HttpClient twice = server().client();
  twice.send(HttpClient::request_text("POST", "/v1/completions", R"({"n":1})") + "\r\n" +
             HttpClient::request_text("GET", "/health", ""));
  EXPECT_EQ(twice.receive().status, 200);
  EXPECT_EQ(twice.receive().status, 200) << "old clients send an empty line behind a body";
  for (const char* target : {"/v1/models", "/v1/models/fake"}) {
    const HttpAnswer models =
        server().client().request("HEAD", target, "", {{"Connection", "close"}});
    EXPECT_EQ(models.status, 200) << target;
    EXPECT_TRUE(models.body.empty()) << models.body;
  }
}

TEST_F(Guard, WhatWouldBeReadWronglyIsRefused) {
  start();
  const std::string line = "POST /v1/completions HTTP/1.1\r\nConnection: close\r\n";
  const std::string body = "Content-Length: 7\r\n\r\n{\"n\":1}";
  const std::string host = "Host: localhost\r\n";
  EXPECT_EQ(send_raw(line + body).status, 400) << "no Host";
  EXPECT_EQ(send_raw(line + host + "Host: evil.example\r\n" + body).status, 400);
  EXPECT_EQ(send_raw("POST http://evil.example/v1/completions HTTP/1.1\r\n" + host + body).status,
            403)
      << "the name in the address counts";
  EXPECT_EQ(send_raw(line + host + "Content-Encoding: gzip\r\n" + body).status, 415);
  EXPECT_EQ(send_raw(line + host +
                     "Transfer-Encoding: gzip, chunked\r\n\r\n"
                     "7\r\n{\"n\":1}\r\n0\r\n\r\n")
                .status,
            501);
  HttpClient smuggler = server().client();
  smuggler.send(line + host + "Transfer-Encoding: gzip\r\n\r\nGET /health HTTP/1.1\r\n" + host +
                "\r\n");
  EXPECT_EQ(smuggler.receive().status, 501);
  EXPECT_EQ(smuggler.receive().status, 0) << "a body of unknown length is no next request";
  const HttpAnswer wrong = server().client().request("DELETE", "/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.header("allow"), "POST");
  EXPECT_EQ(server().client().request("POST", "/health").header("allow"), "GET, HEAD");
  const HttpAnswer loud = send_raw(std::string(9000, 'A') + " / HTTP/1.1\r\n" + host + "\r\n");
  EXPECT_EQ(loud.status, 405);
  EXPECT_LT(loud.body.size(), 500u) << "what a client says is not said back at length";
  expect_alive();
}

TEST_F(Guard, HeaderFloodsEnd) {
  start();
  std::string flood = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 5000; ++i) flood += fmt::format("X-{}: {}\r\n", i, i);
  const HttpAnswer flooded = send_raw(flood + "\r\n");
  EXPECT_EQ(flooded.status, 431);
  EXPECT_TRUE(flooded.header("x-request-id").starts_with("req-"));
  HttpClient endless = server().client();
  endless.send("GET /" + std::string(200000, 'a'));
  EXPECT_EQ(endless.receive().status, 431);
  expect_alive();
}

TEST_F(Guard, SlowHeadersAndBodiesRunOutOfTime) {
  start({"--header-timeout=0.5"});
  HttpClient silent = server().client();
  HttpClient dripping = server().client();
  dripping.send("GET / HTTP/1.1\r\nX-");
  HttpClient half = server().client();
  half.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_TRUE(silent.wait_for_close());
  EXPECT_TRUE(dripping.wait_for_close());
  EXPECT_TRUE(half.wait_for_close());
  expect_alive();
}

TEST_F(Guard, BadUtf8PassesToTheRanksUnchanged) {
  start();
  const HttpAnswer answer = server().ask("\xc3\x28\xff\x80", "/tokenize");
  EXPECT_EQ(Json::parse(answer.body)["body_hex"], "c328ff80");
  EXPECT_EQ(server().ask("{\"n\":1,\"\xff\":1}").status, 400);
  expect_alive();
}

TEST_F(Guard, FiveHundredConnectionsAndNoMore) {
  start({"--queue=1000"});
  const int before = open_files(server().pid());
  {
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 500; ++i) {
      clients.push_back(std::make_unique<HttpClient>("127.0.0.1", server().port()));
    }
    HttpClient extra = server().client();
    EXPECT_EQ(extra.receive().status, 503);
    for (const auto& client : clients) {
      client->send(HttpClient::request_text("POST", "/v1/completions", R"({"n":1,"ms":0})"));
    }
    for (const auto& client : clients) ASSERT_EQ(client->receive().status, 200);
  }
  constexpr int kConnectedAhead = 2;  // one to each rank
  EXPECT_TRUE(eventually([&] { return open_files(server().pid()) <= before + kConnectedAhead; }))
      << before << " files before, " << open_files(server().pid()) << " after";
  expect_alive();
}

TEST_F(Guard, FlagsOfOneRunAreRefused) {
  for (const char* flag : {"--max-tokens=5", "--temperature=1", "--seed=3", "--ignore-eos"}) {
    const ProcessResult refused =
        run_process({program_, "--model=fake", "--rank-program=" + fake_rank_, flag});
    EXPECT_EQ(refused.exit_code, 2) << flag;
    EXPECT_NE(refused.stderr_text.find("each request to a server has its own"), std::string::npos)
        << refused.stderr_text;
  }
}

TEST_F(Guard, WrongFlagsAreNamedInOneLine) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"--queue=-1", "--queue: Value -1 not in range 0 to 100000"},
      {"--timeout=0", "--timeout: Value 0 not in range 0.001"},
      {"--max-context=many", "--max-context: 'many': say auto or a number of positions"},
      {"--max-context=-1", "--max-context: '-1': say auto"},
      {"--max-context=0",
       "--max-context: '0': say auto or a number of positions from 1 to 16777216"},
      {"--max-context=99999999", "--max-context: '99999999': say auto"},
      {"--max-context=99999999999999999999", "--max-context: '99999999999999999999': say auto"},
      {"--slots=9", "--slots: Value 9 not in range 1 to 8"}};
  for (const auto& [flag, said] : wrong) {
    const ProcessResult refused =
        run_process({program_, "--model=fake", "--rank-program=" + fake_rank_, flag});
    EXPECT_EQ(refused.exit_code, 2) << flag;
    EXPECT_NE(refused.stderr_text.find(said), std::string::npos) << refused.stderr_text;
    EXPECT_LT(refused.stderr_text.find('\n'), 200u) << refused.stderr_text;
  }
}

}  // namespace
}  // namespace lockstep::serve
