// What config.json claims about the formats of matrices. Claims are compared with the tensors and
// reported when they are wrong; they are never obeyed.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

class QuantClaims {
 public:
  struct Rule {
    std::string pattern;  // canonical module name, glob with '*', or "re:" and a
                          // regular expression of literals, escapes, "." and "*"
    std::string family;   // "nvfp4", "fp8", "int4" or "plain"
  };

  // The claimed family of a matrix, "" when the config says nothing about it.
  std::string family_of(const std::string& base) const;

  std::vector<Rule> rules;    // first match wins
  std::string linear_family;  // for every other linear layer of the text model; "" when not said
};

// From quantization_config of the ModelOpt, compressed-tensors, fp8, GPTQ and AWQ styles. A config
// without one claims nothing. Never throws for odd content: what it cannot read is no claim.
QuantClaims parse_quant_claims(const std::string& config_json);

// Family of a serialisation by the name that inspection gives it ("nvfp4-modelopt" -> "nvfp4").
std::string format_family(const std::string& format);

}  // namespace lockstep
