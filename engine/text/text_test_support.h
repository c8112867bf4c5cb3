// What several tests of this folder read from golden/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct TokenizerCase {
  std::string text;
  std::vector<int32_t> ids;
  std::string decoded;
};

std::string golden_model_dir();
std::vector<TokenizerCase> golden_tokenizer_cases();
// The text of the golden model's tokenizer.json.
std::string golden_tokenizer_text();

}  // namespace lockstep
