#include "engine/text/detokenizer.h"

#include "engine/text/utf8.h"

namespace lockstep {

std::string Detokenizer::push(int32_t id) {
  if (skip_special_ && tokenizer_->is_special(id)) return "";
  pending_ += tokenizer_->token_bytes(id);
  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Head head = utf8_head(rest);
    if (head.kind == Utf8Head::Kind::truncated) break;
    text +=
        head.kind == Utf8Head::Kind::valid ? rest.substr(0, head.length) : kReplacementCharacter;
    rest.remove_prefix(head.length);
  }
  pending_ = std::string(rest);
  return text;
}

std::string Detokenizer::finish() {
  if (pending_.empty()) return "";
  pending_.clear();
  return std::string(kReplacementCharacter);
}

}  // namespace lockstep
