#include "validation/mutants/catalogue.h"

#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "engine/base/error.h"
#include "faultinject/catalogue_data.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr int kCatalogueVersion = 2;

std::string text_member(const Json& row, const char* key, const std::string& where) {
  if (!row.contains(key)) return {};
  if (!row[key].is_string()) fail("{}: {} must be a string", where, key);
  return row[key].get<std::string>();
}

std::vector<std::string> prompt_names(const Json& row, const std::string& where) {
  std::vector<std::string> names;
  if (!row.contains("prompts")) return names;
  if (!row["prompts"].is_array()) fail("{}: prompts must be a list of names", where);
  for (const Json& name : row["prompts"]) {
    if (!name.is_string()) fail("{}: prompts must be a list of names", where);
    names.push_back(name.get<std::string>());
  }
  return names;
}

CatalogueRow parse_row(const Json& item, const std::string& where) {
  static const std::set<std::string> known = {"fault",   "check",      "names",
                                              "prompts", "equivalent", "survives"};
  if (!item.is_object()) fail("{}: must be an object", where);
  for (const auto& [key, unused] : item.items()) {
    if (!known.contains(key)) fail("{}: unknown field '{}'", where, key);
  }
  CatalogueRow row{text_member(item, "fault", where),      text_member(item, "check", where),
                   text_member(item, "names", where),      prompt_names(item, where),
                   text_member(item, "equivalent", where), text_member(item, "survives", where)};
  if (row.fault.empty() || row.check.empty()) fail("{}: needs fault and check", where);
  if (row.caught() || row.names.empty()) return row;
  fail("{}: names something although nothing sees it (equivalent, survives)", where);
}

}  // namespace

void PrintTo(const CatalogueRow& row, std::ostream* out) {
  *out << row.fault;
}

std::vector<CatalogueRow> parse_catalogue(const std::string& text, const std::string& label) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("rows") || !json["rows"].is_array()) {
    fail("{}: needs version and rows", label);
  }
  const Json version = json.value("version", Json());
  if (version != Json(kCatalogueVersion)) {
    fail("{}: version {} is not {}, the one this build reads", label, version.dump(),
         kCatalogueVersion);
  }
  std::vector<CatalogueRow> rows;
  for (const Json& item : json["rows"]) {
    rows.push_back(parse_row(item, fmt::format("{}: row {}", label, rows.size())));
  }
  return rows;
}

std::vector<CatalogueRow> built_in_catalogue() {
  return parse_catalogue(kCatalogueJson, "faultinject/catalogue.json");
}

std::vector<CatalogueRow> catalogue_sample(const std::vector<CatalogueRow>& rows, int n) {
  const auto size = static_cast<int>(rows.size());
  if (n < 0 || n >= size) return rows;
  std::vector<CatalogueRow> sample;
  for (int i = 0; i < n; ++i) {
    sample.push_back(rows[static_cast<size_t>(int64_t{i} * size / n)]);
  }
  return sample;
}

}  // namespace lockstep
