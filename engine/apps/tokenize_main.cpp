// lockstep tokenize: the ids of texts, and the text that the ids decode to.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/text/tokenizer.h"

namespace lockstep {
namespace {

struct Options {
  std::string model;
  std::string jsonl;
};

std::string text_of_line(const std::string& line, const std::string& file, size_t number) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("text") || !json["text"].is_string()) {
    fail("{}:{}: not a JSON object with a string \"text\"", file, number);
  }
  return json["text"].get<std::string>();
}

int tokenize(const Options& options) {
  const Tokenizer tokenizer = Tokenizer::load(options.model);
  std::ifstream file;
  if (options.jsonl != "-") {
    file.open(options.jsonl, std::ios::binary);
    if (!file) fail("{}: cannot be opened", options.jsonl);
  }
  std::istream& input = options.jsonl == "-" ? std::cin : file;
  std::string line;
  for (size_t number = 1; std::getline(input, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::vector<int32_t> ids = tokenizer.encode(text_of_line(line, options.jsonl, number));
    nlohmann::ordered_json out;
    out["ids"] = ids;
    out["decoded"] = tokenizer.decode(ids);
    std::cout << out.dump() << '\n';
  }
  if (input.bad()) fail("{}: cannot be read", options.jsonl);
  return 0;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Prints, for each line of a file, the ids of its text and the text decoded from them",
      "lockstep tokenize");
  Options options;
  app.add_option("--model", options.model, "Checkpoint folder with tokenizer.json")->required();
  app.add_option("--jsonl", options.jsonl,
                 "File with one JSON object a line that has \"text\"; - reads standard input")
      ->required();
  if (const auto ended = parse_command_line(app, argc, argv)) return *ended;
  return tokenize(options);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep tokenize", [&] { return lockstep::run(argc, argv); });
}
