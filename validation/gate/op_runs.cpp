#include "validation/gate/op_runs.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/process.h"
#include "validation/receipt/baked_sources.h"
#include "validation/receipt/coverage.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool on_path(const std::string& program) {
  if (program.find('/') != std::string::npos) return fs::exists(program);
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (fs::exists(fs::path(folder) / program)) return true;
  }
  return false;
}

fs::path beside(const fs::path& given, const char* name) {
  return given.empty() ? sibling_program(name) : given;
}

}  // namespace

const std::string& OpRuns::missing() {
  if (missing_) return *missing_;
  std::string why;
  try {
    list();
    card_ = read_card(exact_program());
  } catch (const Error& error) {
    if (error.code() != ExitCode::skipped) throw;
    why = error.what();
  }
  missing_ = why;
  return *missing_;
}

const OpList& OpRuns::list() {
  if (!list_) {
    list_ = read_op_list(options_.op_tools.tests.empty()
                             ? sibling_program("").parent_path().parent_path() / "tests"
                             : options_.op_tools.tests);
  }
  return *list_;
}

const SourceUnits& OpRuns::units() {
  if (!units_) units_ = known_units(options_.source, SourceScope::cuda_ops);
  return *units_;
}

std::string OpRuns::stale() {
  const fs::path baked = baked_sources_path();
  if (options_.source.empty() || !fs::is_regular_file(baked)) return {};
  const SourceUnits built = baked_units(baked, SourceScope::cuda_ops);
  for (const auto& [op, files] : units()) {
    const auto before = built.find(op);
    const std::string changes =
        before == built.end() ? "is new" : changed_files(before->second, files);
    if (!changes.empty()) return fmt::format("op {}: {}", op, changes);
  }
  return {};
}

fs::path OpRuns::exact_program() const {
  return beside(options_.op_tools.exact, "lockstep-ops-exact");
}

fs::path OpRuns::bench_program() const {
  return beside(options_.op_tools.bench, "lockstep-bench");
}

std::string OpRuns::sanitizer() const {
  return on_path(options_.op_tools.sanitizer) ? options_.op_tools.sanitizer : std::string();
}

int OpRuns::n_workers() const {
  if (options_.op_tools.n_workers > 0) return options_.op_tools.n_workers;
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace lockstep
