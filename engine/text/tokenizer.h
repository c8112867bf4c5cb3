// The family's tokenizer, exact: added tokens, NFC, the pre-tokenizer's regular expression,
// byte-level byte-pair encoding, and the way back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class Tokenizer {
 public:
  // Reads tokenizer.json and, where it exists, tokenizer_config.json of a checkpoint folder. Throws
  // Error that names the file and what in it is missing, contradictory or of an unknown kind.
  static Tokenizer load(const std::filesystem::path& model_dir);
  // The same from the files' text (`config_json` may be empty); `name` stands for the file in
  // errors.
  static Tokenizer from_json(std::string_view tokenizer_json, std::string_view config_json,
                             const std::string& name);

  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Added tokens in `text` are recognised, as everywhere in the family. Invalid UTF-8 is read as
  // U+FFFD. Safe to call from several threads.
  std::vector<int32_t> encode(std::string_view text) const;

  // Valid UTF-8: what the tokens' bytes do not spell is U+FFFD. Ids that no token has are skipped,
  // and with `skip_special` the tokens that the files flag as special too.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // The bytes that one token adds to the text; empty for an id that no token has.
  std::string_view token_bytes(int32_t id) const;

  bool is_special(int32_t id) const;
  // The added token with this content.
  std::optional<int32_t> added_token_id(std::string_view content) const;

  // One more than the highest id; ids below it may still have no token.
  int32_t id_end() const;
  bool has_token(int32_t id) const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);

  std::unique_ptr<const State> state_;
};

}  // namespace lockstep
