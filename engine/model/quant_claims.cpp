#include "engine/model/quant_claims.h"

#include <nlohmann/json.hpp>
#include <optional>

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

// One character of a pattern, or a run of them.
struct RegexStep {
  char wanted = 0;
  bool any = false;   // "."
  bool many = false;  // followed by "*"
};

// The part of regular expressions that such lists use: literals, escapes, "." and "*". Anything
// else is not understood.
std::optional<std::vector<RegexStep>> parse_simple_regex(std::string_view pattern) {
  std::vector<RegexStep> steps;
  for (size_t i = 0; i < pattern.size(); ++i) {
    RegexStep step;
    if (pattern[i] == '\\' && i + 1 < pattern.size()) {
      step.wanted = pattern[++i];
    } else if (pattern[i] == '.') {
      step.any = true;
    } else if (std::string_view("()[]{}|+?*\\").find(pattern[i]) != std::string_view::npos) {
      return std::nullopt;
    } else if ((pattern[i] == '^' && i == 0) || (pattern[i] == '$' && i + 1 == pattern.size())) {
      continue;
    } else {
      step.wanted = pattern[i];
    }
    if (i + 1 < pattern.size() && pattern[i + 1] == '*') {
      step.many = true;
      ++i;
    }
    steps.push_back(step);
  }
  return steps;
}

// Matches from the start of the text, to its end only with "$". Time grows with the product of the
// lengths, whatever the pattern: the file is not trusted.
bool simple_regex_matches(std::string_view pattern, std::string_view text) {
  const auto steps = parse_simple_regex(pattern);
  if (!steps) return false;
  const bool to_the_end = pattern.ends_with('$');
  std::vector<bool> reached(steps->size() + 1, false);  // steps done so far
  reached[0] = true;
  const auto skip_optional = [&] {
    for (size_t i = 0; i < steps->size(); ++i) {
      if (reached[i] && (*steps)[i].many) reached[i + 1] = true;
    }
  };
  skip_optional();
  for (const char c : text) {
    if (!to_the_end && reached.back()) return true;
    std::vector<bool> next(reached.size(), false);
    for (size_t i = 0; i < steps->size(); ++i) {
      const RegexStep& step = (*steps)[i];
      if (!reached[i] || (!step.any && step.wanted != c)) continue;
      next[step.many ? i : i + 1] = true;
    }
    reached = std::move(next);
    skip_optional();
  }
  return reached.back();
}

bool rule_matches(const std::string& pattern, const std::string& base) {
  constexpr size_t kMaxPattern = 256;
  if (pattern.size() > kMaxPattern) return false;
  if (pattern.rfind("re:", 0) != 0) {
    const std::string canonical = canonical_tensor_name(pattern);
    // Entries name modules, which cover what lies inside them.
    return glob_matches(canonical, base) || glob_matches(canonical + ".*", base);
  }
  return simple_regex_matches(std::string_view(pattern).substr(3), base);
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
