// lockstep CMD: runs lockstep-CMD beside it, as git does.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/base/process.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "lockstep-";

struct Command {
  std::string_view name;
  std::string_view summary;
};

constexpr std::array<Command, 22> kCommands = {{
    {"acceptance", "share of drafts that are taken, against a baseline"},
    {"bench", "how fast ops, engine and proxy are, beside what this machine could do"},
    {"bench-ablate", "times CUDA kernels that leave a part of their work out"},
    {"bench-ops", "times single CPU ops, for who changes one"},
    {"compare", "engine or dump against the oracle, or two dumps, layer by layer"},
    {"diverge", "greedy divergence between two engines: TIE, DRIFT or DEFECT"},
    {"exam", "300 questions, paired with an earlier run"},
    {"fault", "run the fault campaign"},
    {"gate", "the main job: all that a change must pass; receipt and HTML report"},
    {"generate", "one prompt to text, or a file of jobs"},
    {"ops-exact", "integer-exact answers of the CUDA ops, for receipts"},
    {"postmortem", "explain a lockstep failure"},
    {"probe", "is this card worth keeping: hardware acceptance"},
    {"rank", "one rank; with --tp 1 a complete single-card server"},
    {"receipt", "show a receipt, diff two, or verify that they cover the sources"},
    {"render", "show a rendered chat template"},
    {"replay", "run a request log again and compare digests"},
    {"sass-gate", "judge the machine code of compiled kernels against a baseline"},
    {"serve", "two ranks and the proxy: OpenAI and Anthropic APIs"},
    {"smoke", "the serving scenarios against an endpoint"},
    {"tokenize", "ids of texts"},
    {"weights", "inspect, shard, verify, join, convert or synthesise checkpoints"},
}};

// Built for tests only; they start it by its full name.
constexpr std::string_view kHidden = "rank-faulty";

bool is_executable(const fs::path& path) {
  return fs::is_regular_file(path) && ::access(path.c_str(), X_OK) == 0;
}

std::vector<std::string> installed_commands() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(sibling_program("").parent_path())) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with(kPrefix) || !is_executable(entry.path())) continue;
    const std::string name = file.substr(kPrefix.size());
    if (name != kHidden) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string_view summary_of(const std::string& name) {
  const auto at = std::find_if(kCommands.begin(), kCommands.end(),
                               [&](const Command& command) { return command.name == name; });
  return at == kCommands.end() ? std::string_view() : at->summary;
}

int print_help() {
  fmt::print("usage: lockstep COMMAND [options]\n\n");
  for (const std::string& name : installed_commands()) {
    fmt::print("  {:<12} {}\n", name, summary_of(name));
  }
  fmt::print("\n'lockstep COMMAND --help' explains one of them.\n");
  return 0;
}

// Letters, digits and '-' only: a command never reaches outside this folder.
bool is_command_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-';
  });
}

// Becomes the command; returns only by throwing.
[[noreturn]] void become(const std::string& name, char** argv) {
  const std::string program = sibling_program(std::string(kPrefix) + name).string();
  const std::string unknown = fmt::format("unknown command '{}': see 'lockstep --help'", name);
  if (!is_command_name(name) || name.front() == '-' || !is_executable(program)) {
    throw Error(unknown, ExitCode::usage);
  }
  std::vector<char*> arguments;
  std::string path = program;
  arguments.push_back(path.data());
  for (char** argument = argv; *argument != nullptr; ++argument) arguments.push_back(*argument);
  arguments.push_back(nullptr);
  ::execv(program.c_str(), arguments.data());
  fail("cannot start {}: {}", program, std::strerror(errno));
}

int front(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--version") {
    fmt::print("lockstep {}\n", LOCKSTEP_VERSION);
    return 0;
  }
  if (first == "--help" || first == "-h" || (first == "help" && argc == 2)) return print_help();
  if (first.empty()) {
    print_help();
    return static_cast<int>(ExitCode::usage);
  }
  if (first == "help") {
    std::string flag = "--help";
    std::array<char*, 2> arguments = {flag.data(), nullptr};
    become(argv[2], arguments.data());
  }
  become(first, argv + 2);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep", [&] { return lockstep::front(argc, argv); });
}
