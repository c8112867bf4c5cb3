#include "engine/text/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "engine/base/error.h"
#include "engine/text/utf8.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

// Tokens lie in a table by id: ids end far above any vocabulary, and not much above what a file of
// this size can hold, which has more bytes than tokens.
constexpr int64_t kMaxIds = 1 << 21;
constexpr int64_t kSpareIds = 1 << 16;

class Reader {
 public:
  Reader(std::string_view tokenizer_json, std::string_view config_json, const std::string& name)
      : name_(name),
        id_end_(std::min(kMaxIds, kSpareIds + static_cast<int64_t>(tokenizer_json.size()))) {
    const Json root = parse(tokenizer_json, name_);
    read_normalizer(root);
    read_pre_tokenizer(root);
    const Json& decoder = member(root, "decoder");
    if (type_of(decoder) != "ByteLevel") refuse("decoder.type is not ByteLevel");
    if (!is_null(root, "post_processor") && type_of(root["post_processor"]) != "ByteLevel") {
      refuse("post_processor is not null or ByteLevel");
    }
    make_byte_alphabet();
    read_model(member(root, "model"));
    read_added_tokens(root);
    if (!config_json.empty())
      read_config(parse(config_json, "tokenizer_config.json beside " + name_));
  }

  TokenizerData take() { return std::move(data_); }

 private:
  [[noreturn]] void refuse(const std::string& what) const { fail("{}: {}", name_, what); }

  static Json parse(std::string_view text, const std::string& name) {
    Json root = Json::parse(text, nullptr, false);
    if (root.is_discarded()) fail("{}: not valid JSON", name);
    if (!root.is_object()) fail("{}: not a JSON object", name);
    return root;
  }

  const Json& member(const Json& object, const char* key) const {
    if (!object.is_object() || !object.contains(key)) refuse(fmt::format("{} is missing", key));
    return object[key];
  }

  static bool is_null(const Json& object, const char* key) {
    return !object.contains(key) || object[key].is_null();
  }

  std::string type_of(const Json& object) const {
    const Json& type = member(object, "type");
    return type.is_string() ? type.get<std::string>() : "";
  }

  void read_normalizer(const Json& root) {
    data_.normalise_nfc = !is_null(root, "normalizer");
    if (data_.normalise_nfc && type_of(root["normalizer"]) != "NFC") {
      refuse("normalizer is neither NFC nor null");
    }
  }

  void read_pre_tokenizer(const Json& root) {
    const Json& pre = member(root, "pre_tokenizer");
    if (type_of(pre) != "Sequence") refuse("pre_tokenizer.type is not Sequence");
    const Json& steps = member(pre, "pretokenizers");
    if (!steps.is_array() || steps.size() != 2 || type_of(steps[0]) != "Split" ||
        type_of(steps[1]) != "ByteLevel") {
      refuse("pre_tokenizer is not Split followed by ByteLevel");
    }
    const Json& regex = member(member(steps[0], "pattern"), "Regex");
    if (!regex.is_string() || !piece_rule_of_regex(regex.get<std::string>(), &data_.piece_rule)) {
      refuse("pre_tokenizer has a regular expression that is not this model family's");
    }
    if (member(steps[0], "behavior") != "Isolated" || flag(steps[0], "invert")) {
      refuse("pre_tokenizer.Split is not Isolated");
    }
    if (flag(steps[1], "add_prefix_space") || flag(steps[1], "use_regex")) {
      refuse("pre_tokenizer.ByteLevel has add_prefix_space or use_regex set");
    }
  }

  bool flag(const Json& object, const char* key) const {
    if (is_null(object, key)) return false;
    if (!object[key].is_boolean()) refuse(fmt::format("{} is not true or false", key));
    return object[key].get<bool>();
  }

  // Byte-level vocabularies write every byte as one printable character: itself where it is one,
  // else the next free code point from U+0100 on.
  void make_byte_alphabet() {
    uint32_t next_free = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const uint32_t code = printable ? byte : next_free++;
      byte_of_code_[code] = static_cast<uint8_t>(byte);
      code_of_byte_[byte] = code;
    }
  }

  // A token with a character outside the alphabet stands for its own UTF-8.
  std::string bytes_of(const std::string& written) const {
    std::string bytes;
    for (size_t at = 0; at < written.size();) {
      const auto found = byte_of_code_.find(next_code_point(written, &at));
      if (found == byte_of_code_.end()) return written;
      bytes += static_cast<char>(found->second);
    }
    return bytes;
  }

  int32_t checked_id(const Json& value, const std::string& token) const {
    if (!value.is_number_integer() || value < 0 || value >= id_end_) {
      refuse(fmt::format("token {} has an id outside 0..{}", printable(token), id_end_ - 1));
    }
    return value.get<int32_t>();
  }

  static std::string printable(const std::string& token) { return Json(token).dump(-1, ' ', true); }

  void put_token(int32_t id, const std::string& written, bool special) {
    const auto index = static_cast<size_t>(id);
    if (data_.tokens.size() <= index) data_.tokens.resize(index + 1);
    if (data_.tokens[index].exists) refuse(fmt::format("id {} is given to two tokens", id));
    data_.tokens[index] = {bytes_of(written), true, special};
  }

  void read_model(const Json& model) {
    if (type_of(model) != "BPE") refuse("model.type is not BPE");
    for (const char* key :
         {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!is_null(model, key) && model[key] != "" && model[key] != 0.0) {
        refuse(fmt::format("model.{} is set, which this model family never does", key));
      }
    }
    for (const char* key : {"byte_fallback", "ignore_merges", "fuse_unk"}) {
      if (flag(model, key))
        refuse(fmt::format("model.{} is true, which this model family never has", key));
    }
    const Json& vocab = member(model, "vocab");
    if (!vocab.is_object() || vocab.empty()) refuse("model.vocab is not an object with tokens");
    for (const auto& [token, id] : vocab.items()) {
      const int32_t value = checked_id(id, token);
      put_token(value, token, false);
      vocab_[token] = value;
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      std::string written;
      append_utf8(written, code_of_byte_[byte]);
      data_.byte_ids[byte] = vocab_id(written, fmt::format("of byte 0x{:02X}", byte));
    }
    read_merges(member(model, "merges"));
  }

  int32_t vocab_id(const std::string& token, const std::string& role) const {
    const auto found = vocab_.find(token);
    if (found == vocab_.end()) {
      refuse(fmt::format("model.vocab lacks the token {} {}", printable(token), role));
    }
    return found->second;
  }

  void read_merges(const Json& merges) {
    if (!merges.is_array()) refuse("model.merges is not a list");
    std::unordered_set<uint64_t> seen;
    data_.merges.reserve(merges.size());
    for (const Json& entry : merges) {
      const std::string role = fmt::format("of merge {}", data_.merges.size());
      const auto [left, right] = merge_parts(entry, role);
      const BpeMerge merge{vocab_id(left, role), vocab_id(right, role),
                           vocab_id(left + right, role)};
      if (!seen.insert((uint64_t{static_cast<uint32_t>(merge.left)} << 32) |
                       static_cast<uint32_t>(merge.right))
               .second) {
        refuse(fmt::format("the pair {} is listed before", role));
      }
      data_.merges.push_back(merge);
    }
  }

  // ["a", "b"], or "a b" as older files have it.
  std::pair<std::string, std::string> merge_parts(const Json& entry,
                                                  const std::string& role) const {
    if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
      return {entry[0].get<std::string>(), entry[1].get<std::string>()};
    }
    if (entry.is_string()) {
      const auto text = entry.get<std::string>();
      const size_t space = text.find(' ');
      if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
        return {text.substr(0, space), text.substr(space + 1)};
      }
    }
    refuse(fmt::format("the entry {} is not a pair of tokens", role));
  }

  void read_added_tokens(const Json& root) {
    if (is_null(root, "added_tokens")) return;
    if (!root["added_tokens"].is_array()) refuse("added_tokens is not a list");
    for (const Json& entry : root["added_tokens"]) {
      const Json& content = member(entry, "content");
      if (!content.is_string()) refuse("an added token's content is not a string");
      add_token(content.get<std::string>(), checked_id(member(entry, "id"), content), entry);
    }
  }

  // Published checkpoints list some added tokens in tokenizer_config.json alone.
  void read_config(const Json& config) {
    if (is_null(config, "added_tokens_decoder")) return;
    const Json& decoder = config["added_tokens_decoder"];
    if (!decoder.is_object())
      refuse("added_tokens_decoder of tokenizer_config.json is not an object");
    for (const auto& [key, entry] : decoder.items()) {
      const Json id = Json::parse(key, nullptr, false);
      const Json& content = member(entry, "content");
      if (!content.is_string()) refuse("an added token's content is not a string");
      add_token(content.get<std::string>(), checked_id(id, content), entry);
    }
  }

  void add_token(const std::string& content, int32_t id, const Json& entry) {
    if (content.empty()) refuse(fmt::format("the added token with id {} is empty", id));
    for (const char* key : {"single_word", "lstrip", "rstrip", "normalized"}) {
      if (flag(entry, key)) {
        refuse(fmt::format("added token {} has {} set, which is not supported", printable(content),
                           key));
      }
    }
    const bool special = flag(entry, "special");
    const auto [known, is_new] = added_ids_.try_emplace(content, id);
    if (!is_new) {
      if (known->second != id) {
        refuse(fmt::format("added token {} has the ids {} and {}", printable(content),
                           known->second, id));
      }
      return;
    }
    const auto in_vocab = vocab_.find(content);
    if (in_vocab != vocab_.end()) {
      if (in_vocab->second != id) {
        refuse(fmt::format("added token {} has id {}, but {} in model.vocab", printable(content),
                           id, in_vocab->second));
      }
      data_.tokens[static_cast<size_t>(id)].special = special;
    } else {
      put_token(id, content, special);
    }
    data_.added.push_back({content, id, special});
  }

  std::string name_;
  int64_t id_end_;
  TokenizerData data_;
  std::unordered_map<uint32_t, uint8_t> byte_of_code_;
  std::array<uint32_t, 256> code_of_byte_{};
  std::unordered_map<std::string, int32_t> vocab_;
  std::unordered_map<std::string, int32_t> added_ids_;
};

}  // namespace

TokenizerData parse_tokenizer_files(std::string_view tokenizer_json, std::string_view config_json,
                                    const std::string& name) {
  return Reader(tokenizer_json, config_json, name).take();
}

}  // namespace lockstep
