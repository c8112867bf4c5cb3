#include "engine/text/text_test_support.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/base/mapped_file.h"

namespace lockstep {

std::string golden_model_dir() {
  return std::string(LOCKSTEP_GOLDEN_DIR) + "/tiny-qwen3_5";
}

std::vector<TokenizerCase> golden_tokenizer_cases() {
  std::ifstream file(std::string(LOCKSTEP_GOLDEN_DIR) + "/tokenizer/tokenizer-cases.jsonl");
  std::vector<TokenizerCase> cases;
  std::string line;
  while (std::getline(file, line)) {
    const auto entry = nlohmann::json::parse(line);
    cases.push_back({entry.at("text"), entry.at("ids"), entry.at("decoded")});
  }
  return cases;
}

std::string golden_tokenizer_text() {
  return read_text_file(golden_model_dir() + "/tokenizer.json");
}

}  // namespace lockstep
