#include "faultinject/catalogue.h"

#include <nlohmann/json.hpp>
#include <ostream>

#include "engine/base/error.h"
#include "faultinject/catalogue_data.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr int kCatalogueVersion = 1;
constexpr std::pair<const char*, Detector> kDetectors[] = {{"compare", Detector::compare},
                                                           {"depths", Detector::depths},
                                                           {"cache", Detector::cache},
                                                           {"agreement", Detector::agreement}};

std::string text_member(const Json& row, const char* key, const std::string& where) {
  if (!row.contains(key) || !row[key].is_string()) fail("{}: {} must be a string", where, key);
  return row[key].get<std::string>();
}

int int_member(const Json& row, const char* key, int fallback, const std::string& where) {
  if (!row.contains(key)) return fallback;
  if (!row[key].is_number_integer()) fail("{}: {} must be an integer", where, key);
  return row[key].get<int>();
}

Detector parse_detector(const std::string& name, const std::string& where) {
  for (const auto& [known, detector] : kDetectors) {
    if (name == known) return detector;
  }
  fail("{}: unknown detector '{}'", where, name);
}

}  // namespace

void PrintTo(const CatalogueRow& row, std::ostream* out) {
  *out << row.fault;
}

const char* detector_name(Detector detector) {
  for (const auto& [name, known] : kDetectors) {
    if (known == detector) return name;
  }
  return "";
}

std::vector<CatalogueRow> parse_catalogue(const std::string& text, const std::string& label) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object() || !json.contains("rows")) {
    fail("{}: needs version and rows", label);
  }
  const int version = int_member(json, "version", 0, label);
  if (version != kCatalogueVersion) {
    fail("{}: version {} is not {}, the one this build reads", label, version, kCatalogueVersion);
  }
  std::vector<CatalogueRow> rows;
  for (const Json& item : json["rows"]) {
    const std::string where = fmt::format("{}: row {}", label, rows.size());
    CatalogueRow row;
    row.fault = text_member(item, "fault", where);
    row.detector = parse_detector(text_member(item, "detector", where), where);
    row.names = text_member(item, "names", where);
    row.tp = int_member(item, "tp", row.tp, where);
    row.mtp = int_member(item, "mtp", row.mtp, where);
    row.prefill_grid = int_member(item, "prefill_grid", row.prefill_grid, where);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<CatalogueRow> built_in_catalogue() {
  return parse_catalogue(kCatalogueJson, "faultinject/catalogue.json");
}

}  // namespace lockstep
