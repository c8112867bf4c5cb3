// lockstep-sass-gate DUMP BASELINE [--update]
#include <CLI/CLI.hpp>
#include <fstream>
#include <iterator>

#include "ci/sass/sass.h"
#include "engine/base/cli.h"
#include "engine/base/error.h"

namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) lockstep::fail("{}: cannot read it", path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-sass-gate", [&] {
    CLI::App app(
        "Judges the machine code of compiled kernels (registers, spills, instructions) by what "
        "cuobjdump prints, against a baseline; ci/lanes/sm70.sh starts it",
        "lockstep sass-gate");
    std::string dump;
    std::string baseline;
    bool update = false;
    app.add_option("dump", dump, "Output of cuobjdump -res-usage, then -sass")->required();
    app.add_option("baseline", baseline, "JSON, see docs/v100.md")->required();
    app.add_flag("--update", update, "Write the figures into the baseline, to be reviewed");
    if (const auto ended = lockstep::parse_command_line(app, argc, argv)) return *ended;
    const std::vector<lockstep::sass::Kernel> kernels = lockstep::sass::parse_dump(read_text(dump));
    if (kernels.empty()) lockstep::fail("{}: holds no kernel", dump);
    const std::string wanted = read_text(baseline);
    if (update) {
      std::ofstream(baseline) << lockstep::sass::with_figures(kernels, wanted);
      return 0;
    }
    const std::vector<std::string> findings = lockstep::sass::judge(kernels, wanted);
    for (const std::string& finding : findings) fmt::print("{}\n", finding);
    fmt::print("{} kernels, {} findings\n", kernels.size(), findings.size());
    return findings.empty() ? 0 : static_cast<int>(lockstep::ExitCode::fail);
  });
}
