#include "validation/receipt/baked_sources.h"

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/ungated_ops.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr int kVersion = 1;

}  // namespace

fs::path baked_sources_path() {
  return share_folder() / "sources.json";
}

std::string baked_sources(const fs::path& root) {
  Json scopes = Json::object();
  for (const SourceScope scope : {SourceScope::cuda_ops, SourceScope::engine}) {
    scopes[scope_name(scope)] = source_units(root, scope);
  }
  return Json{{"format", "lockstep-sources"}, {"format_version", kVersion}, {"scopes", scopes}}
             .dump(1) +
         "\n";
}

SourceUnits baked_units(const fs::path& path, SourceScope scope) {
  const Json json = Json::parse(read_text_file(path), nullptr, false);
  if (!json.is_object() || json.value("format", Json()) != Json("lockstep-sources") ||
      json.value("format_version", Json()) != Json(kVersion)) {
    fail("{}: is no list of source digests of version {}", path.string(), kVersion);
  }
  try {
    return json.at("scopes").at(scope_name(scope)).get<SourceUnits>();
  } catch (const Json::exception&) {
    fail("{}: has no digests of scope {}", path.string(), scope_name(scope));
  }
}

SourceUnits known_units(const fs::path& root, SourceScope scope) {
  if (!root.empty()) return source_units(root, scope);
  const fs::path baked = baked_sources_path();
  return fs::is_regular_file(baked) ? baked_units(baked, scope) : SourceUnits();
}

}  // namespace lockstep
