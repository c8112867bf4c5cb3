#include "engine/model/quant_claims.h"

#include <nlohmann/json.hpp>
#include <regex>

#include "engine/model/checkpoint.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

bool glob_matches(std::string_view pattern, std::string_view text) {
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;
  size_t star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool rule_matches(const std::string& pattern, const std::string& base) {
  constexpr size_t kMaxPattern = 256;
  if (pattern.size() > kMaxPattern) return false;
  if (pattern.rfind("re:", 0) != 0) {
    const std::string canonical = canonical_tensor_name(pattern);
    // Entries name modules, which cover what lies inside them.
    return glob_matches(canonical, base) || glob_matches(canonical + ".*", base);
  }
  try {
    return std::regex_search(base, std::regex(pattern.substr(3)),
                             std::regex_constants::match_continuous);
  } catch (const std::regex_error&) {
    return false;
  }
}

std::string algorithm_family(const Json& algorithm) {
  if (!algorithm.is_string()) return "";
  const std::string text = algorithm.get<std::string>();
  if (text.find("NVFP4") != std::string::npos) return "nvfp4";
  if (text.find("FP8") != std::string::npos) return "fp8";
  if (text.find("W4A16") != std::string::npos || text.find("INT4") != std::string::npos)
    return "int4";
  return "";
}

std::string group_family(const Json& weights) {
  if (!weights.is_object()) return "";
  const bool is_float = weights.value("type", Json()) == "float";
  const Json bits = weights.value("num_bits", Json());
  if (bits == 4) return is_float ? "nvfp4" : "int4";
  if (bits == 8 && is_float) return "fp8";
  return "";
}

void add_plain_rules(const Json& quant, const char* key, QuantClaims& claims) {
  if (!quant.contains(key) || !quant[key].is_array()) return;
  for (const Json& pattern : quant[key]) {
    if (pattern.is_string()) claims.rules.push_back({pattern.get<std::string>(), "plain"});
  }
}

void add_layer_map(const Json& layers, QuantClaims& claims) {
  for (const auto& [name, entry] : layers.items()) {
    if (!entry.is_object()) continue;
    const std::string family = algorithm_family(entry.value("quant_algo", Json()));
    if (!family.empty()) claims.rules.push_back({name, family});
  }
  // A layer map is complete: what it does not name is not quantised.
  claims.linear_family = "plain";
}

void add_groups(const Json& groups, QuantClaims& claims) {
  for (const auto& [name, group] : groups.items()) {
    if (!group.is_object() || !group.contains("targets") || !group["targets"].is_array()) continue;
    const std::string family = group_family(group.value("weights", Json()));
    if (family.empty()) continue;
    for (const Json& target : group["targets"]) {
      if (target == "Linear") {
        claims.linear_family = family;
      } else if (target.is_string()) {
        claims.rules.push_back({target.get<std::string>(), family});
      }
    }
  }
}

bool is_linear(const std::string& base) {
  const bool text = base.rfind("model.language_model.", 0) == 0 || base.rfind("mtp.", 0) == 0;
  const bool projection = base.size() > 5 && base.find("_proj") != std::string::npos;
  return base == "lm_head" || (text && projection) || base == "mtp.fc";
}

}  // namespace

std::string QuantClaims::family_of(const std::string& base) const {
  for (const Rule& rule : rules) {
    if (rule_matches(rule.pattern, base)) return rule.family;
  }
  return is_linear(base) ? linear_family : "";
}

QuantClaims parse_quant_claims(const std::string& config_json) {
  QuantClaims claims;
  const Json json = Json::parse(config_json, nullptr, false);
  if (!json.is_object() || !json.contains("quantization_config")) return claims;
  const Json& quant = json["quantization_config"];
  if (!quant.is_object()) return claims;
  add_plain_rules(quant, "ignore", claims);
  add_plain_rules(quant, "exclude_modules", claims);
  add_plain_rules(quant, "modules_to_not_convert", claims);
  const Json method = quant.value("quant_method", Json());
  if (method == "fp8") claims.linear_family = "fp8";
  if (method == "gptq" || method == "awq") claims.linear_family = "int4";
  if (method == "modelopt") {
    claims.linear_family = algorithm_family(quant.value("quant_algo", Json()));
  }
  if (quant.contains("config_groups") && quant["config_groups"].is_object()) {
    add_groups(quant["config_groups"], claims);
  }
  if (quant.contains("quantized_layers") && quant["quantized_layers"].is_object()) {
    add_layer_map(quant["quantized_layers"], claims);
  }
  return claims;
}

std::string format_family(const std::string& format) {
  if (format.rfind("nvfp4", 0) == 0) return "nvfp4";
  if (format.rfind("fp8", 0) == 0) return "fp8";
  if (format.rfind("int4", 0) == 0 || format == "gptq" || format == "awq") return "int4";
  return "plain";
}

}  // namespace lockstep
