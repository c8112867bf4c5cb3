// Tokens to text, one at a time.
#pragma once

#include <cstdint>
#include <string>

#include "engine/text/tokenizer.h"

namespace lockstep {

// Gives out the text of generated tokens as soon as it is certain. The deltas together equal
// Tokenizer::decode of all the tokens; each is valid UTF-8. It starts at the first generated token,
// so no text of the prompt ever appears.
class Detokenizer {
 public:
  // `tokenizer` must outlive this object.
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // The text that `id` settles; empty while a character is incomplete.
  std::string push(int32_t id);
  // What is left at the end of the generation: U+FFFD for an incomplete character, else nothing.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;  // an incomplete character, at most 3 bytes between calls
};

}  // namespace lockstep
