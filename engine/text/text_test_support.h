// What several tests of this folder read from golden/.
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/mapped_file.h"

namespace lockstep {

struct TokenizerCase {
  std::string text;
  std::vector<int32_t> ids;
  std::string decoded;
};

inline std::string golden_model_dir() {
  return std::string(LOCKSTEP_GOLDEN_DIR) + "/tiny-qwen3_5";
}

inline std::vector<TokenizerCase> golden_tokenizer_cases() {
  std::ifstream file(std::string(LOCKSTEP_GOLDEN_DIR) + "/tokenizer/tokenizer-cases.jsonl");
  std::vector<TokenizerCase> cases;
  std::string line;
  while (std::getline(file, line)) {
    const auto entry = nlohmann::json::parse(line);
    cases.push_back({entry.at("text"), entry.at("ids"), entry.at("decoded")});
  }
  return cases;
}

inline nlohmann::json golden_tokenizer_json() {
  return nlohmann::json::parse(read_text_file(golden_model_dir() + "/tokenizer.json"));
}

}  // namespace lockstep
