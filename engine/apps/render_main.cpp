// lockstep render: the prompt that a chat request makes.
#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <iterator>

#include "engine/base/cli.h"
#include "engine/base/mapped_file.h"
#include "engine/text/chat_request.h"

namespace lockstep {
namespace {

struct Options {
  std::string model;
  std::string chat;
  int64_t now_unix_s = -1;
};

int render(const Options& options) {
  const ChatTemplate chat_template = ChatTemplate::load(options.model);
  const std::string body = options.chat == "-"
                               ? std::string(std::istreambuf_iterator<char>(std::cin), {})
                               : read_text_file(options.chat);
  const auto clock = std::chrono::system_clock::now().time_since_epoch();
  const int64_t now = options.now_unix_s >= 0
                          ? options.now_unix_s
                          : std::chrono::duration_cast<std::chrono::seconds>(clock).count();
  std::cout << render_chat(chat_template, body, now);
  return 0;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Prints the prompt that a chat-completions request makes, generation prompt included",
      "lockstep render");
  Options options;
  app.add_option("--model", options.model, "Checkpoint folder with chat_template.jinja")
      ->required();
  app.add_option("--chat", options.chat,
                 "File with the body of a chat-completions request; - reads standard input")
      ->required();
  app.add_option(
         "--now", options.now_unix_s,
         "UTC time in seconds since 1970 for templates that print the date (default: the clock)")
      ->check(CLI::NonNegativeNumber);
  if (const auto ended = parse_command_line(app, argc, argv)) return *ended;
  return render(options);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep render", [&] { return lockstep::run(argc, argv); });
}
