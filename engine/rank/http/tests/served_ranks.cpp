#include "engine/rank/http/tests/served_ranks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/sanitizer_reports.h"
#include "engine/comm/mailbox.h"

namespace lockstep::testing {
namespace {

const std::string kBin = LOCKSTEP_BIN_DIR;
const std::string kModel = std::string(LOCKSTEP_GOLDEN_DIR) + "/tiny-qwen3_5";

httplib::Client client_of(int port) {
  httplib::Client client("127.0.0.1", port);
  client.set_read_timeout(120);
  client.set_tcp_nodelay(true);
  return client;
}

httplib::Headers to_httplib(const Headers& headers) {
  httplib::Headers result;
  for (const auto& [name, value] : headers) result.emplace(name, value);
  return result;
}

std::string read_line(int fd) {
  std::string line;
  char c = 0;
  while (::read(fd, &c, 1) == 1 && c != '\n') line += c;
  return line;
}

}  // namespace

ServedRanks::ServedRanks(int n_ranks, std::vector<std::string> flags, const std::string& program) {
  const int mailbox = n_ranks > 1 ? create_mailbox_file() : -1;
  // All of them before the first listens: they wait for each other.
  for (int rank = 0; rank < n_ranks; ++rank) {
    ranks_.push_back(start(rank, n_ranks, mailbox, program, flags));
  }
  for (Process& process : ranks_) {
    process.line = read_line(process.output);
    ::close(process.output);
    const auto json = nlohmann::json::parse(process.line, nullptr, false);
    process.port = json.is_object() ? json.value("port", 0) : 0;
  }
  if (mailbox >= 0) ::close(mailbox);
}

ServedRanks::Process ServedRanks::start(int rank, int n_ranks, int mailbox,
                                        const std::string& program,
                                        const std::vector<std::string>& flags) const {
  std::vector<std::string> argv = {kBin + "/" + program, "serve", "--model", kModel};
  argv.push_back("--tp=" + std::to_string(n_ranks));
  argv.push_back("--rank=" + std::to_string(rank));
  if (mailbox >= 0) {
    argv.push_back(fmt::format("--mailbox=/proc/{}/fd/{}", ::getpid(), mailbox));
  }
  argv.push_back("--round-log=" + (folder() / fmt::format("rounds.{}", rank)).string());
  argv.push_back("--halt-dir=" + folder().string());
  argv.insert(argv.end(), flags.begin(), flags.end());
  const std::string log_path = (folder() / fmt::format("log.{}", rank)).string();
  const int log = ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  int pipe[2];
  LOCKSTEP_CHECK(log >= 0 && ::pipe2(pipe, O_CLOEXEC) == 0);
  Process process;
  process.child = std::make_unique<ChildProcess>(argv, std::map<std::string, std::string>(),
                                                 ChildProcess::Outputs{pipe[1], log});
  process.output = pipe[0];
  ::close(pipe[1]);
  ::close(log);
  return process;
}

ServedRanks::~ServedRanks() {
  for (int rank = 0; rank < n_ranks(); ++rank) {
    ranks_[static_cast<size_t>(rank)].child->send_signal(SIGKILL);
    wait(rank);
    for (const std::string& report : sanitizer_reports(log(rank))) ADD_FAILURE() << report;
  }
}

int ServedRanks::wait(int rank) {
  return ranks_.at(static_cast<size_t>(rank)).child->wait();
}

int ServedRanks::end(int rank) {
  ranks_.at(static_cast<size_t>(rank)).child->send_signal(SIGTERM);
  return wait(rank);
}

std::string ServedRanks::log(int rank) const {
  const auto path = folder() / fmt::format("log.{}", rank);
  return std::filesystem::file_size(path) == 0 ? "" : read_text_file(path);
}

std::string ServedRanks::round_log(int rank) const {
  return read_text_file(folder() / fmt::format("rounds.{}", rank));
}

std::string ServedRanks::listening_line(int rank) const {
  return ranks_.at(static_cast<size_t>(rank)).line;
}

int ServedRanks::connect(int rank) const {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port(rank)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  LOCKSTEP_CHECK(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  return fd;
}

RankAnswer ServedRanks::get(const std::string& path, int rank) const {
  auto client = client_of(port(rank));
  const auto result = client.Get(path.c_str());
  return result ? RankAnswer{result->status, result->body} : RankAnswer{};
}

RankAnswer ServedRanks::post(const std::string& path, const std::string& body,
                             const Headers& headers, int rank) const {
  auto client = client_of(port(rank));
  const auto result = client.Post(path.c_str(), to_httplib(headers), body, "application/json");
  return result ? RankAnswer{result->status, result->body} : RankAnswer{};
}

Headers ServedRanks::numbered(uint64_t number) {
  return {{"Lockstep-Sequence", std::to_string(number)},
          {"Lockstep-Seed", std::to_string(1000 + number)},
          {"Lockstep-Unix-Time", "1700000000"},
          {"Lockstep-Request-Id", "r" + std::to_string(number)}};
}

RankAnswer ServedRanks::ask(const std::string& path, const std::string& body) {
  return ask(path, body, take_number());
}

RankAnswer ServedRanks::ask(const std::string& path, const std::string& body,
                            uint64_t number) const {
  std::vector<RankAnswer> answers(ranks_.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n_ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      answers[static_cast<size_t>(rank)] = post(path, body, numbered(number), rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const RankAnswer& answer : answers) {
    if (answer.status == answers[0].status && answer.body == answers[0].body) continue;
    fail("request {}: the ranks answer {} {} and {} {}", number, answers[0].status, answers[0].body,
         answer.status, answer.body);
  }
  return answers[0];
}

void ServedRanks::cancel(uint64_t number, int rank) const {
  const std::string body = fmt::format("{{\"sequence\":{}}}", number);
  const int status = post("/lockstep/cancel", body, {}, rank).status;
  if (status != 200) fail("cancel of {}: {}", number, status);
}

std::string chat_body(const std::string& text, const std::string& more) {
  nlohmann::ordered_json body;
  body["messages"] = {{{"role", "user"}, {"content", text}}};
  std::string json = body.dump();
  if (!more.empty()) json.insert(json.size() - 1, ", " + more);
  return json;
}

}  // namespace lockstep::testing
