// The text side of a checkpoint: tokenizer and chat template, where the folder has them.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/rank/request.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

namespace lockstep {

class ModelText {
 public:
  // Loads what is there; a folder without tokenizer.json serves token ids only.
  explicit ModelText(const std::filesystem::path& model_dir);

  bool has_tokenizer() const { return tokenizer_.has_value(); }
  // Throws Error that names the missing file.
  const Tokenizer& tokenizer() const;

  // Vocabulary rows that have a token; 0 without a tokenizer (all rows count).
  int64_t n_live_tokens() const { return tokenizer_ ? tokenizer_->id_end() : 0; }

  std::vector<int32_t> encode(std::string_view text) const { return tokenizer().encode(text); }
  // Renders the body of a chat-completions request, generation prompt included. `now_unix_s` is the
  // date that a template may ask for.
  std::string render(std::string_view body_json,
                     std::optional<int64_t> now_unix_s = std::nullopt) const;
  // The same, encoded.
  std::vector<int32_t> encode_chat(std::string_view body_json) const {
    return encode(render(body_json));
  }

  // Watches for stop strings; null for an empty list.
  std::shared_ptr<StopWatcher> watch(const std::vector<std::string>& stops) const;

  // Generated text: special tokens left out, cut before the first stop string.
  std::string decode(const std::vector<int32_t>& ids, const std::vector<std::string>& stops) const;

 private:
  std::filesystem::path dir_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_template_;
};

}  // namespace lockstep
