#include "validation/gate/receipt.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "build_identity.h"
#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "validation/compare/report_json.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;  // sorted keys: the canonical order
namespace fs = std::filesystem;

constexpr const char* kFormat = "lockstep-receipt";

std::string canonical(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string digest_of(Json receipt) {
  receipt.erase("digest");
  Digest128 digest;
  digest.update(canonical(receipt));
  return digest.hex();
}

void update_with_file(Digest128& digest, const fs::path& path) {
  digest.update(path.filename().string() + "\n");
  if (fs::file_size(path) > 0) digest.update(MappedFile(path).bytes());
}

std::string digest_of_files(std::vector<fs::path> paths) {
  std::sort(paths.begin(), paths.end());
  Digest128 digest;
  for (const fs::path& path : paths) update_with_file(digest, path);
  return digest.hex();
}

std::string oracle_digest(const fs::path& prefix) {
  std::vector<fs::path> paths;
  for (const char* suffix : {".json", ".safetensors"}) {
    const fs::path path = prefix.string() + suffix;
    if (fs::is_regular_file(path)) paths.push_back(path);
  }
  return digest_of_files(paths);
}

std::string cpu_name() {
  std::error_code ignored;
  if (!fs::exists("/proc/cpuinfo", ignored)) return "";
  std::istringstream lines(read_text_file("/proc/cpuinfo"));
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with("model name"))
      return line.substr(std::min(line.find(':') + 2, line.size()));
  }
  return "";
}

Json steps_json(const GateReport& report) {
  Json steps = Json::array();
  for (const GateStep& step : report.steps) {
    steps.push_back({{"id", step.id},
                     {"title", step.title},
                     {"verdict", verdict_name(step.verdict)},
                     {"detail", step.detail},
                     {"repro", step.repro}});
  }
  return steps;
}

Json comparisons_json(const GateReport& report) {
  Json comparisons = Json::array();
  for (const GateComparison& comparison : report.comparisons) {
    comparisons.push_back({{"title", comparison.title},
                           {"precision", comparison.precision == Precision::fp32 ? "fp32" : "bf16"},
                           {"report", Json::parse(report_json(comparison.report, false))}});
  }
  return comparisons;
}

// What differs between two runs of one build on one input.
Json host_json(const GateReport& report, const ReceiptFacts& facts) {
  Json seconds = Json::object();
  for (const GateStep& step : report.steps) seconds[step.id] = step.seconds;
  return {{"cpu", cpu_name()},
          {"cores", std::thread::hardware_concurrency()},
          {"started", facts.started},
          {"seconds", facts.seconds},
          {"step_seconds", seconds}};
}

}  // namespace

std::string make_receipt(const GateReport& report, const ReceiptFacts& facts) {
  Json runs = Json::object();
  for (const auto& [run, digest] : report.run_digests) runs[run] = digest;
  const GateOptions& options = facts.options;
  Json receipt = {
      {"format", kFormat},
      {"format_version", kReceiptVersion},
      {"command", facts.command},
      {"verdict", verdict_name(report.verdict)},
      {"build",
       {{"version", kBuildVersion},
        {"commit", kBuildCommit},
        {"dirty", kBuildDirty},
        {"compiler", __VERSION__},
        {"programs_digest", programs_digest()}}},
      {"model", {{"path", options.model.string()}, {"digest", folder_digest(options.model)}}},
      {"oracle", {{"path", options.oracle.string()}, {"digest", oracle_digest(options.oracle)}}},
      {"fault", options.fault},
      {"steps", steps_json(report)},
      {"runs", runs},
      {"comparisons", comparisons_json(report)},
      {"not_checked", report.not_checked},
      {"host", host_json(report, facts)}};
  // Over what a reader will see: invalid UTF-8 in a message is replaced before the digest is taken.
  receipt = Json::parse(canonical(receipt));
  receipt["digest"] = digest_of(receipt);
  return receipt.dump(1) + "\n";
}

void verify_receipt(const std::string& text, const std::string& label) {
  const Json receipt = Json::parse(text, nullptr, false);
  if (!receipt.is_object() || receipt.value("format", Json()) != Json(kFormat)) {
    fail("{}: is no receipt", label);
  }
  const Json version = receipt.value("format_version", Json());
  if (!version.is_number_integer() || version.get<int64_t>() > kReceiptVersion) {
    fail("{}: receipt format version {} is newer than this program's {}", label, version.dump(),
         kReceiptVersion);
  }
  if (receipt.value("digest", Json()) != Json(digest_of(receipt))) {
    fail("{}: the digest does not fit: the receipt was changed after it was written", label);
  }
}

std::string folder_digest(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  return digest_of_files(paths);
}

std::string programs_digest() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(sibling_program("").parent_path())) {
    const std::string name = entry.path().filename().string();
    const bool ours = name == "lockstep" || name.starts_with("lockstep-");
    if (ours && entry.is_regular_file()) paths.push_back(entry.path());
  }
  return digest_of_files(paths);
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace lockstep
