#include "engine/rank/api/tests/api_test_support.h"

namespace lockstep::testing {

const Tokenizer& golden_tokenizer() {
  static const Tokenizer tokenizer =
      Tokenizer::load(std::string(LOCKSTEP_GOLDEN_DIR) + "/tiny-qwen3_5");
  return tokenizer;
}

}  // namespace lockstep::testing
