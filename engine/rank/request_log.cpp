#include "engine/rank/request_log.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/media/data_url.h"
#include "engine/model/checkpoint_digest.h"
#include "engine/model/synth/synthetic.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::vector<Json> json_lines(const fs::path& path) {
  std::istringstream text(read_text_file(path, size_t{1} << 30));
  std::vector<Json> lines;
  std::string line;
  for (int number = 1; std::getline(text, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Json json = Json::parse(line, nullptr, false);
    if (!json.is_object()) fail("{}:{}: is not a JSON object", path.string(), number);
    lines.push_back(std::move(json));
  }
  return lines;
}

template <typename T>
std::optional<T> optional_member(const Json& json, const char* key, const std::string& where) {
  if (!json.contains(key) || json[key].is_null()) return std::nullopt;
  if (!json[key].is_number()) fail("{}: {} must be a number", where, key);
  return json[key].get<T>();
}

std::string string_member(const Json& json, const char* key, const std::string& where) {
  if (!json.contains(key) || !json[key].is_string()) fail("{}: {} must be a string", where, key);
  return json[key].get<std::string>();
}

// The log must not depend on files that may change: it holds the pictures themselves.
void embed_images(Json& job, const fs::path& folder) {
  if (!job.contains("images") || job["images"].is_null()) return;
  if (job["images"].is_string()) job["images"] = Json::array({job["images"]});
  for (Json& image : job["images"]) {
    const std::string text = image.get<std::string>();
    if (!is_data_url(text)) image = encode_data_url(MappedFile(folder / text).bytes());
  }
}

}  // namespace

std::vector<std::string> result_digests(const fs::path& out_dir) {
  std::vector<std::string> digests;
  for (const Json& result : json_lines(out_dir / "results.jsonl")) {
    const Json judged = {{"ids", result["ids"]},
                         {"logits", result.contains("logits") ? result["logits"] : Json()}};
    const std::string text = judged.dump();
    digests.push_back(digest128_hex(std::as_bytes(std::span(text.data(), text.size()))));
  }
  return digests;
}

std::string model_fingerprint(const std::string& model) {
  Digest128 digest;
  if (is_synthetic_spec(model)) {
    digest.update(model);
  } else {
    digest.update(read_text_file(fs::path(model) / "config.json"));
    digest.update(checkpoint_fingerprint(Checkpoint(fs::path(model))));
  }
  return digest.hex();
}

std::string request_log_header(const RunFlags& flags) {
  Json header = {
      {"version", kRequestLogVersion},      {"model", model_fingerprint(flags.model_dir)},
      {"backend", flags.backend},           {"kernels", flags.kernels},
      {"precision", flags.precision},       {"kv", flags.kv},
      {"prefill_grid", flags.prefill_grid}, {"ignore_eos", flags.ignore_eos}};
  if (flags.max_tokens) header["max_tokens"] = *flags.max_tokens;
  if (flags.temperature) header["temperature"] = *flags.temperature;
  if (flags.seed) header["seed"] = *flags.seed;
  return header.dump();
}

void require_recordable(const fs::path& path, const RunFlags& flags, const fs::path& jobs) {
  for (const Json& job : json_lines(jobs)) {
    if (!job.contains("inject")) continue;
    fail("--record {}: job {} puts tensors in, which a request log cannot hold: leave --record out",
         path.string(), job.value("name", Json()).dump());
  }
  model_fingerprint(flags.model_dir);
}

void write_request_log(const fs::path& path, const RunFlags& flags, const fs::path& jobs,
                       const fs::path& out_dir) {
  std::vector<Json> lines = json_lines(jobs);
  for (Json& job : lines) embed_images(job, jobs.parent_path());
  const std::vector<std::string> digests = result_digests(out_dir);
  LOCKSTEP_CHECK(lines.size() == digests.size());
  std::string text = request_log_header(flags) + "\n";
  for (size_t i = 0; i < lines.size(); ++i) {
    text += Json({{"job", lines[i]}, {"digest", digests[i]}}).dump() + "\n";
  }
  write_file_atomically(path, text);
}

RequestLog read_request_log(const fs::path& path) {
  const std::string where = path.string();
  const std::vector<Json> lines = json_lines(path);
  if (lines.empty()) fail("{}: is not a request log: it is empty", where);
  const Json& header = lines[0];
  const auto version = optional_member<int>(header, "version", where);
  if (!version) fail("{}: is not a request log: no version in its first line", where);
  if (*version != kRequestLogVersion) {
    fail("{}: version {} is not {}, the one this build reads", where, *version, kRequestLogVersion);
  }
  RequestLog log;
  log.model_digest = string_member(header, "model", where);
  if (header.contains("backend")) log.backend = string_member(header, "backend", where);
  if (header.contains("kernels")) log.kernels = string_member(header, "kernels", where);
  log.precision = string_member(header, "precision", where);
  log.kv = string_member(header, "kv", where);
  log.prefill_grid = optional_member<int64_t>(header, "prefill_grid", where).value_or(512);
  log.max_tokens = optional_member<int64_t>(header, "max_tokens", where);
  log.temperature = optional_member<double>(header, "temperature", where);
  log.seed = optional_member<uint64_t>(header, "seed", where);
  log.ignore_eos = header.value("ignore_eos", false);
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::string line_name = fmt::format("{}:{}", where, i + 1);
    if (!lines[i].contains("job") || !lines[i]["job"].is_object()) {
      fail("{}: needs an object job", line_name);
    }
    log.requests.push_back({string_member(lines[i]["job"], "name", line_name),
                            lines[i]["job"].dump(), string_member(lines[i], "digest", line_name)});
  }
  if (log.requests.empty()) fail("{}: holds no request", where);
  return log;
}

}  // namespace lockstep
