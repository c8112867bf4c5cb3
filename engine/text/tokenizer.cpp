#include "engine/text/tokenizer.h"

#include <algorithm>

#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/text/added_tokens.h"
#include "engine/text/tokenizer_json.h"
#include "engine/text/unicode/unicode.h"
#include "engine/text/utf8.h"

namespace lockstep {
namespace {

// Remembers the tokens of pieces within one call of encode: text repeats its words. Direct-mapped:
// a newer piece takes an older one's place, so memory stays bounded.
class PieceCache {
 public:
  explicit PieceCache(size_t text_bytes)
      : entries_(text_bytes < kSmallText ? kSmallEntries : kLargeEntries) {}

  void encode(const Bpe& bpe, std::string_view piece, std::vector<int32_t>& out) {
    if (piece.size() > kMaxPiece) {
      bpe.encode(piece, out);
      return;
    }
    const uint64_t hash = digest64(std::as_bytes(std::span(piece)));
    Entry& entry = entries_[hash & (entries_.size() - 1)];
    if (entry.size != piece.size() || !std::equal(piece.begin(), piece.end(), entry.piece)) {
      const size_t before = out.size();
      bpe.encode(piece, out);
      std::copy(piece.begin(), piece.end(), entry.piece);
      entry.size = static_cast<uint8_t>(piece.size());
      entry.n_ids = static_cast<uint8_t>(out.size() - before);
      std::copy(out.begin() + static_cast<int64_t>(before), out.end(), entry.ids);
      return;
    }
    out.insert(out.end(), entry.ids, entry.ids + entry.n_ids);
  }

 private:
  static constexpr size_t kMaxPiece = 22;  // an entry is two cache lines
  static constexpr size_t kSmallText = 4096;
  static constexpr size_t kSmallEntries = 256;
  static constexpr size_t kLargeEntries = 16384;

  struct Entry {
    char piece[kMaxPiece];
    uint8_t size = 0;  // 0: unused
    uint8_t n_ids = 0;
    int32_t ids[kMaxPiece];
  };

  std::vector<Entry> entries_;
};

}  // namespace

struct Tokenizer::State {
  explicit State(TokenizerData tokenizer_data)
      : data(std::move(tokenizer_data)), bpe(data.byte_ids, data.merges) {
    for (const AddedToken& token : data.added) {
      matcher.add(token.content, token.id);
      added_ids[token.content] = token.id;
    }
  }

  void encode_span(std::string_view raw, PieceCache& cache, std::vector<int32_t>& out) const {
    std::string normalised;
    if (data.normalise_nfc && !is_surely_nfc(raw)) {
      normalised = to_nfc(raw);
      raw = normalised;
    }
    for (size_t at = 0; at < raw.size();) {
      const size_t end = next_piece(raw, at, data.piece_rule);
      cache.encode(bpe, raw.substr(at, end - at), out);
      at = end;
    }
  }

  TokenizerData data;
  Bpe bpe;
  AddedTokenMatcher matcher;
  std::unordered_map<std::string, int32_t> added_ids;
};

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::load(const std::filesystem::path& model_dir) {
  const std::filesystem::path config = model_dir / "tokenizer_config.json";
  const std::filesystem::path file = model_dir / "tokenizer.json";
  return from_json(read_text_file(file),
                   std::filesystem::exists(config) ? read_text_file(config) : "", file.string());
}

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json, std::string_view config_json,
                               const std::string& name) {
  return Tokenizer(
      std::make_unique<const State>(parse_tokenizer_files(tokenizer_json, config_json, name)));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  PieceCache cache(text.size());
  std::vector<int32_t> ids;
  for (size_t at = 0; at < text.size();) {
    const AddedTokenMatcher::Match match = state_->matcher.find(text, at);
    state_->encode_span(text.substr(at, match.begin - at), cache, ids);
    if (match.id >= 0) ids.push_back(match.id);
    at = match.end;
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (!skip_special || !is_special(id)) bytes += token_bytes(id);
  }
  return is_valid_utf8(bytes) ? bytes : replace_invalid_utf8(bytes);
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  return has_token(id) ? std::string_view(state_->data.tokens[static_cast<size_t>(id)].bytes)
                       : std::string_view();
}

bool Tokenizer::is_special(int32_t id) const {
  return has_token(id) && state_->data.tokens[static_cast<size_t>(id)].special;
}

std::optional<int32_t> Tokenizer::added_token_id(std::string_view content) const {
  const auto found = state_->added_ids.find(std::string(content));
  if (found == state_->added_ids.end()) return std::nullopt;
  return found->second;
}

int32_t Tokenizer::id_end() const {
  return static_cast<int32_t>(state_->data.tokens.size());
}

bool Tokenizer::has_token(int32_t id) const {
  return id >= 0 && id < id_end() && state_->data.tokens[static_cast<size_t>(id)].exists;
}

}  // namespace lockstep
