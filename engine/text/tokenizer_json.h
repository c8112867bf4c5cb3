// What tokenizer.json and tokenizer_config.json say, checked, in the form that the tokenizer needs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/bpe.h"
#include "engine/text/pretokenizer.h"

namespace lockstep {

struct TokenizerToken {
  std::string bytes;  // what it adds to a decoded text
  bool exists = false;
  bool special = false;
};

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
};

struct TokenizerData {
  std::vector<TokenizerToken> tokens;  // by id
  std::vector<AddedToken> added;
  std::array<int32_t, 256> byte_ids{};
  std::vector<BpeMerge> merges;  // by rank
  PieceRule piece_rule = PieceRule::letters_and_marks;
  bool normalise_nfc = true;
};

// `config_json` may be empty. Throws Error, prefixed with `name`.
TokenizerData parse_tokenizer_files(std::string_view tokenizer_json, std::string_view config_json,
                                    const std::string& name);

}  // namespace lockstep
