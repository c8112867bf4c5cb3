// A rank without an engine, for tests of the proxy: answers what the request's body scripts, and
// dies, stalls or disagrees where the body says so.
//
//   {"stream": true, "n": 5, "ms": 1, "prepare_ms": 0, "encode_ms": 0, "prefill_ms": 0, "pad": 0,
//    "fault": {"rank": 1, "at": "start|prefill|decode",
//              "do": "kill|stop|exit|exit-slowly|hang|differ|overflow|race"}}
//
// A target that ends in "?refuse=R" or "?die=R": rank R resets the connection, or dies, with half
// the request.
//
// --model=dies: ends at once with exit code 70; --model=hangs: never listens; --model=impatient:
// closes a connection that brings nothing for 50 ms.
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <thread>

namespace {

using Json = nlohmann::ordered_json;

struct State {
  int rank = 0;
  bool impatient = false;
  std::string key;
  std::atomic<uint64_t> round{0};
  std::mutex mutex;
  std::map<uint64_t, std::string> phases;
  std::set<uint64_t> cancelled;
  std::set<uint64_t> preparing;
  bool encoding = false;
};

State state;

// `more`: further members of the line.
void note(const char* event, uint64_t sequence, const std::string& more = "") {
  const std::string line =
      fmt::format("{{\"event\":\"{}\",\"sequence\":{}{}}}\n", event, sequence, more);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

struct Incoming {
  std::string method;
  std::string target;
  std::map<std::string, std::string> headers;
  std::string body;
  int64_t waited_ms = 0;  // from the connection to the first byte
};

// False when none came.
bool wait_for_first_byte(int fd, Incoming& incoming) {
  const auto connected = std::chrono::steady_clock::now();
  pollfd wanted{fd, POLLIN, 0};
  if (::poll(&wanted, 1, state.impatient ? 50 : -1) <= 0) return false;
  const auto waited = std::chrono::steady_clock::now() - connected;
  incoming.waited_ms = std::chrono::duration_cast<std::chrono::milliseconds>(waited).count();
  return true;
}

bool read_request(int fd, Incoming& incoming) {
  std::string text;
  std::array<char, 64 << 10> piece;
  if (!wait_for_first_byte(fd, incoming)) return false;
  size_t head_end;
  while ((head_end = text.find("\r\n\r\n")) == std::string::npos) {
    const ssize_t n = ::recv(fd, piece.data(), piece.size(), 0);
    if (n <= 0) return false;
    text.append(piece.data(), static_cast<size_t>(n));
  }
  incoming.method = text.substr(0, text.find(' '));
  const size_t target = incoming.method.size() + 1;
  incoming.target = text.substr(target, text.find(' ', target) - target);
  for (size_t at = text.find("\r\n") + 2; at < head_end + 2;) {
    const size_t end = text.find("\r\n", at);
    const size_t colon = text.find(": ", at);
    incoming.headers[text.substr(at, colon - at)] = text.substr(colon + 2, end - colon - 2);
    at = end + 2;
  }
  if (incoming.target.ends_with(fmt::format("?die={}", state.rank))) ::raise(SIGKILL);
  if (incoming.target.ends_with(fmt::format("?refuse={}", state.rank))) {
    const linger reset{1, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    return false;
  }
  const size_t size = std::strtoull(incoming.headers["Content-Length"].c_str(), nullptr, 10);
  incoming.body = text.substr(head_end + 4);
  while (incoming.body.size() < size) {
    const ssize_t n = ::recv(fd, piece.data(), piece.size(), 0);
    if (n <= 0) return false;
    incoming.body.append(piece.data(), static_cast<size_t>(n));
  }
  return true;
}

bool send_all(int fd, const std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    const ssize_t n = ::send(fd, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

void answer(int fd, int status, const std::string& body) {
  send_all(fd, fmt::format("HTTP/1.1 {} X\r\nContent-Type: application/json\r\n"
                           "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
                           status, body.size(), body));
}

std::string status_json() {
  const std::lock_guard lock(state.mutex);
  Json json = {{"rank", state.rank},
               {"round", state.round.load()},
               {"preparing", state.preparing},
               {"encoding", state.encoding},
               {"slots", Json::array()}};
  for (const auto& [sequence, phase] : state.phases) {
    json["slots"].push_back({{"sequence", sequence}, {"phase", phase}, {"tokens", 0}});
  }
  return json.dump();
}

// What AddressSanitizer must find.
void write_past_the_end(int n) {
  const auto bytes = std::make_unique<volatile char[]>(static_cast<size_t>(n));
  bytes[static_cast<size_t>(n)] = 1;
}

// What ThreadSanitizer must find.
void count_in_two_threads() {
  volatile int count = 0;
  const auto add = [&count] {
    for (int i = 0; i < 1000; ++i) count = count + 1;
  };
  std::thread other(add);
  add();
  other.join();
}

// A process that holds a card's memory ends long after its connections.
void end_as_with_a_card() {
  fmt::print(stderr, "TP2 LOCKSTEP FAILURE round=7 field=token_hash\n");
  std::fflush(stderr);
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    const bool connected = ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
    if (connected) ::shutdown(fd, SHUT_RDWR);
  }
  ::usleep(1500 * 1000);
  ::_exit(70);
}

// True when the answer of this rank must differ from here on.
bool act(const Json& script, const char* at) {
  if (!script.contains("fault")) return false;
  const Json& fault = script["fault"];
  if (fault.value("rank", 0) != state.rank || fault.value("at", "") != at) return false;
  const std::string what = fault.value("do", "");
  if (what == "kill") ::raise(SIGKILL);
  if (what == "stop") ::raise(SIGSTOP);
  if (what == "exit") {
    fmt::print(stderr, "TP2 LOCKSTEP FAILURE round=7 field=token_hash\n");
    ::_exit(70);
  }
  if (what == "exit-slowly") end_as_with_a_card();
  while (what == "hang") ::pause();
  if (what == "overflow") write_past_the_end(script.value("n", 3));
  if (what == "race") count_in_two_threads();
  return what == "differ";
}

bool is_cancelled(uint64_t sequence) {
  const std::lock_guard lock(state.mutex);
  return state.cancelled.count(sequence) > 0;
}

void rest(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

void set_phase(uint64_t sequence, const char* phase) {
  const std::lock_guard lock(state.mutex);
  if (phase == nullptr) {
    state.phases.erase(sequence);
  } else {
    state.phases[sequence] = phase;
  }
}

// While it lives, the rank says that it reads this request: no rounds, and deaf to a cancel, as the
// real one's parser and tokenizer.
class Preparation {
 public:
  explicit Preparation(uint64_t sequence) : sequence_(sequence) {
    const std::lock_guard lock(state.mutex);
    state.preparing.insert(sequence_);
  }
  ~Preparation() {
    const std::lock_guard lock(state.mutex);
    state.preparing.erase(sequence_);
  }
  Preparation(const Preparation&) = delete;
  Preparation& operator=(const Preparation&) = delete;

 private:
  uint64_t sequence_;
};

// Nothing when the body is no JSON object. A large one takes seconds under a sanitizer.
std::optional<Json> read_script(const Incoming& incoming, uint64_t sequence) {
  const Preparation preparation(sequence);
  Json script = Json::parse(incoming.body, nullptr, false);
  note("got", sequence, fmt::format(",\"waited_ms\":{}", incoming.waited_ms));
  if (!script.is_object()) return std::nullopt;
  rest(script.value("prepare_ms", 0));
  return script;
}

// Encodes a picture for `ms`, in one round.
void encode(int ms) {
  const auto set = [](bool encoding) {
    const std::lock_guard lock(state.mutex);
    state.encoding = encoding;
  };
  if (ms == 0) return;
  set(true);
  rest(ms);
  set(false);
}

std::string chunk(const std::string& text) {
  return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
}

void generate(int fd, Incoming& incoming) {
  const uint64_t sequence =
      std::strtoull(incoming.headers["Lockstep-Sequence"].c_str(), nullptr, 10);
  const std::optional<Json> read = read_script(incoming, sequence);
  if (!read) {
    answer(fd, 400, R"({"error":{"message":"body is no JSON object"}})");
    return;
  }
  const Json& script = *read;
  set_phase(sequence, "prefill");
  encode(script.value("encode_ms", 0));
  bool differ = act(script, "prefill");
  for (int ms = 0; ms < script.value("prefill_ms", 0) && !is_cancelled(sequence); ++ms) {
    rest(1);
    ++state.round;
  }
  set_phase(sequence, "decode");
  const bool stream = script.value("stream", false);
  const std::string pad(static_cast<size_t>(script.value("pad", 0)), 'x');
  bool open = !stream || send_all(fd,
                                  "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                  "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
  std::string all;
  const int n = script.value("n", 3);
  for (int i = 0; i < n && open && !is_cancelled(sequence); ++i) {
    if (i == n / 2) differ = act(script, "decode") || differ;
    const Json event = {{"i", i},
                        {"seed", incoming.headers["Lockstep-Seed"]},
                        {"id", incoming.headers["Lockstep-Request-Id"]},
                        {"pad", pad + (differ ? "!" : "")}};
    all += fmt::format("data: {}\n\n", event.dump());
    if (stream) open = send_all(fd, chunk(std::exchange(all, {})));
    rest(script.value("ms", 1));
    ++state.round;
  }
  // As real ranks: a cancelled stream ends without a proper ending.
  if (is_cancelled(sequence)) {
    note("cancelled", sequence);
    if (!stream) answer(fd, 499, "{}");
  } else if (stream) {
    send_all(fd, chunk("data: [DONE]\n\n") + "0\r\n\r\n");
  } else {
    answer(fd, 200, Json({{"text", all}, {"sequence", sequence}}).dump());
  }
  set_phase(sequence, nullptr);
}

void control(int fd, const Incoming& incoming) {
  const Json json = Json::parse(incoming.body, nullptr, false);
  const uint64_t sequence = json.value("sequence", uint64_t{0});
  const bool cancel = incoming.target == "/lockstep/cancel";
  {
    const std::lock_guard lock(state.mutex);
    state.cancelled.insert(sequence);  // a number that is void ends too
  }
  note(cancel ? "cancel" : "void", sequence);
  answer(fd, 200, "{}");
}

void serve(int fd) {
  Incoming incoming;
  if (read_request(fd, incoming)) {
    if (incoming.headers["Lockstep-Key"] != state.key) {
      answer(fd, 403, "{}");
    } else if (incoming.target == "/lockstep/status") {
      answer(fd, 200, status_json());
    } else if (incoming.target.starts_with("/lockstep/")) {
      control(fd, incoming);
    } else if (incoming.headers.count("Lockstep-Sequence") > 0) {
      generate(fd, incoming);
    } else {
      std::string hex;
      for (const unsigned char byte : incoming.body) hex += fmt::format("{:02x}", byte);
      answer(fd, 200, Json({{"target", incoming.target}, {"body_hex", hex}}).dump());
    }
  }
  ::close(fd);
}

int listen_on_loopback(uint16_t& port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd, 64) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return -1;
  }
  port = ntohs(address.sin_port);
  return fd;
}

}  // namespace

int main(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGQUIT, [](int) { ::_exit(76); });
  std::string model;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--rank=")) state.rank = std::atoi(argument.c_str() + 7);
    if (argument.starts_with("--model=")) model = argument.substr(8);
  }
  const char* key = std::getenv("LOCKSTEP_RANK_KEY");
  state.key = key == nullptr ? "" : key;
  if (model == "dies") {
    fmt::print(stderr, "fake_rank: model dies: no such model\n");
    return 70;
  }
  if (model == "hangs") ::pause();
  state.impatient = model == "impatient";
  uint16_t port = 0;
  const int listener = listen_on_loopback(port);
  if (listener < 0) return 1;
  fmt::print("{{\"event\":\"listening\",\"port\":{}}}\n", port);
  std::fflush(stdout);
  for (;;) {
    const int fd = ::accept(listener, nullptr, nullptr);
    if (fd < 0) return 1;
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    std::thread(serve, fd).detach();
  }
}
