#include "validation/receipt/receipt_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "validation/receipt/signature.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;  // sorted keys: the canonical order
namespace fs = std::filesystem;

std::string canonical(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string digest_of(Json receipt) {
  receipt.erase("digest");
  receipt.erase("signature");
  Digest128 digest;
  digest.update(canonical(receipt));
  return digest.hex();
}

std::string text_at(const Json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
}

const Json& object_at(const Json& json, const char* key) {
  static const Json empty = Json::object();
  const auto at = json.find(key);
  return at != json.end() && at->is_object() ? *at : empty;
}

SourceUnits read_units(const Json& sources) {
  SourceUnits units;
  for (const auto& [unit, files] : object_at(sources, "units").items()) {
    for (const auto& [path, digest] : object_at(files, "files").items()) {
      if (digest.is_string()) units[unit][path] = digest.get<std::string>();
    }
  }
  return units;
}

void collect(const Json& json, const std::string& path, std::map<std::string, std::string>& out) {
  if (!json.is_structured() || json.empty()) {
    out[path] = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    return;
  }
  for (const auto& [key, value] : json.items()) {
    collect(value, path.empty() ? key : path + "." + key, out);
  }
}

std::map<std::string, std::string> comparable_values(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return {};
  for (const char* key : {"host", "digest", "signature"}) json.erase(key);
  std::map<std::string, std::string> values;
  collect(json, "", values);
  return values;
}

// Who is to blame for what is red: a required check, or an optional one that found something.
void read_blame(const Json& receipt, ReceiptSummary& summary) {
  for (const Json& step : receipt.value("steps", Json::array())) {
    const std::string verdict = text_at(step, "verdict");
    const bool listed_only = verdict == "SKIPPED" && step.value("required", Json()) == Json(false);
    if (verdict == "PASS" || listed_only) continue;
    const Json ops = step.value("ops", Json::array());
    if (!ops.is_array() || ops.empty()) summary.blames_all = true;
    for (const Json& op : ops) {
      if (op.is_string()) summary.blamed.emplace(op, text_at(step, "id") + " is " + verdict);
    }
  }
}

}  // namespace

std::string sealed_receipt(const std::string& text, const fs::path& key_file) {
  Json receipt = Json::parse(text);
  receipt["digest"] = digest_of(receipt);
  if (!key_file.empty()) {
    const Signature signature = sign_text(receipt["digest"].get<std::string>(), key_file);
    receipt["signature"] = {
        {"algorithm", "ed25519"}, {"public_key", signature.public_key}, {"value", signature.value}};
  }
  return receipt.dump(1) + "\n";
}

void verify_receipt(const std::string& text, const std::string& label) {
  const Json receipt = Json::parse(text, nullptr, false);
  if (!receipt.is_object() || receipt.value("format", Json()) != Json(kReceiptFormat)) {
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
  if (!receipt.contains("signature")) return;
  const Json& signature = object_at(receipt, "signature");
  if (!signature_fits(receipt["digest"].get<std::string>(),
                      {text_at(signature, "public_key"), text_at(signature, "value")})) {
    fail("{}: the signature does not fit", label);
  }
}

ReceiptSummary read_receipt(const fs::path& path) {
  const std::string text = read_text_file(path);
  verify_receipt(text, path.string());
  const Json receipt = Json::parse(text);
  ReceiptSummary summary;
  summary.file = path.filename().string();
  summary.policy = text_at(receipt, "policy");
  summary.verdict = text_at(receipt, "verdict");
  summary.started = text_at(object_at(receipt, "host"), "started");
  summary.complete =
      receipt.value("complete", Json()) == Json(true) && text_at(receipt, "fault").empty();
  summary.is_signed = receipt.contains("signature");
  const Json& sources = object_at(receipt, "sources");
  summary.scope = text_at(sources, "scope");
  summary.units = read_units(sources);
  read_blame(receipt, summary);
  const Json& ops = object_at(receipt, "ops");
  if (ops.contains("exact")) summary.exact = parse_exact(ops["exact"].dump(), path.string());
  return summary;
}

fs::path add_receipt(const fs::path& folder, const std::string& receipt) {
  verify_receipt(receipt, "receipt");
  const Json json = Json::parse(receipt);
  std::string started = text_at(object_at(json, "host"), "started");
  std::erase_if(started, [](char c) { return c == '-' || c == ':'; });
  const fs::path path = folder / fmt::format("{}-{}-{}.json", text_at(json, "policy"), started,
                                             text_at(json, "digest").substr(0, 8));
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail("{}: {}", folder.string(), error.message());
  if (fs::exists(path)) fail("{}: exists; receipts are never overwritten", path.string());
  write_file_atomically(path, receipt);
  return path;
}

std::string receipt_text(const std::string& text, const std::string& label) {
  verify_receipt(text, label);
  const Json receipt = Json::parse(text);
  const Json& build = object_at(receipt, "build");
  const Json& host = object_at(receipt, "host");
  const Json& sources = object_at(receipt, "sources");
  std::string out =
      fmt::format("{}: {} {}\n", label, text_at(receipt, "policy"), text_at(receipt, "verdict"));
  out += fmt::format("command  {}\n", text_at(receipt, "command"));
  out += fmt::format("started  {} on {}\n", text_at(host, "started"), text_at(host, "cpu"));
  out += fmt::format("commit   {}{}\n", text_at(build, "commit"),
                     build.value("dirty", Json()) == Json(true) ? " with changes" : "");
  out += fmt::format("model    {}\n", text_at(object_at(receipt, "model"), "digest"));
  out += fmt::format("oracle   {}\n", text_at(object_at(receipt, "oracle"), "digest"));
  out += fmt::format("sources  {} in {} units\n", text_at(sources, "scope"),
                     object_at(sources, "units").size());
  out += fmt::format("digest   {}{}\n", text_at(receipt, "digest"),
                     receipt.contains("signature") ? ", signed" : "");
  const Json& card = object_at(object_at(receipt, "ops"), "card");
  if (!card.empty()) {
    out += fmt::format("card     {} ({}), driver for CUDA {}\n", text_at(card, "name"),
                       text_at(card, "uuid"), text_at(card, "driver"));
  }
  for (const Json& step : receipt.value("steps", Json::array())) {
    out += fmt::format("{:<11}{:<18} {}\n", text_at(step, "verdict"), text_at(step, "id"),
                       text_at(step, "detail"));
  }
  return out;
}

std::vector<std::string> receipt_differences(const std::string& a, const std::string& b) {
  std::map<std::string, std::string> left = comparable_values(a);
  std::map<std::string, std::string> right = comparable_values(b);
  std::map<std::string, std::string> all = left;
  all.insert(right.begin(), right.end());
  std::vector<std::string> lines;
  for (const auto& [path, unused] : all) {
    const std::string x = left.contains(path) ? left[path] : "absent";
    const std::string y = right.contains(path) ? right[path] : "absent";
    if (x != y) lines.push_back(fmt::format("{}: {} -> {}", path, x, y));
  }
  return lines;
}

}  // namespace lockstep
