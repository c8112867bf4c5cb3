#include "engine/model/gguf/gguf_tokenizer.h"

#include <nlohmann/json.hpp>

#include "engine/base/error.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr int32_t kNormal = 1;
constexpr int32_t kControl = 3;
constexpr int32_t kUserDefined = 4;
constexpr int32_t kUnused = 5;

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
};

void set_token(Vocabulary& vocabulary, const Json& id, const std::string& text, int32_t type) {
  const auto size = vocabulary.tokens.size();
  if (!id.is_number_unsigned() || id.get<uint64_t>() >= size) {
    fail("tokenizer.json: token '{}' has id {}, outside the vocabulary of {}", text, id.dump(),
         size);
  }
  vocabulary.tokens[id.get<size_t>()] = text;
  vocabulary.types[id.get<size_t>()] = type;
}

Vocabulary read_vocabulary(const Json& tokenizer, int vocab_size) {
  Vocabulary vocabulary;
  for (int id = 0; id < vocab_size; ++id) {
    vocabulary.tokens.push_back(fmt::format("[PAD{}]", id));
    vocabulary.types.push_back(kUnused);
  }
  for (const auto& [text, id] : tokenizer["model"]["vocab"].items()) {
    set_token(vocabulary, id, text, kNormal);
  }
  for (const Json& added : tokenizer.value("added_tokens", Json::array())) {
    if (!added.is_object() || !added.contains("content") || !added["content"].is_string()) {
      fail("tokenizer.json: an added token has no content");
    }
    set_token(vocabulary, added.value("id", Json()), added["content"].get<std::string>(),
              added.value("special", Json()) == true ? kControl : kUserDefined);
  }
  return vocabulary;
}

std::vector<std::string> read_merges(const Json& merges) {
  std::vector<std::string> lines;
  for (const Json& merge : merges) {
    if (merge.is_string()) {
      lines.push_back(merge.get<std::string>());
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      lines.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    } else {
      fail("tokenizer.json: a merge is neither a string nor a pair");
    }
  }
  return lines;
}

}  // namespace

void add_gguf_tokenizer(const ModelConfig& config, const CompanionFiles& companions,
                        GgufWriter& writer) {
  const auto file = companions.find("tokenizer.json");
  if (file == companions.end())
    fail("tokenizer.json is missing: a GGUF file carries its tokenizer");
  const Json tokenizer = Json::parse(file->second, nullptr, false);
  const bool complete =
      tokenizer.is_object() && tokenizer.contains("model") && tokenizer["model"].is_object() &&
      tokenizer["model"].contains("vocab") && tokenizer["model"]["vocab"].is_object() &&
      tokenizer["model"].contains("merges") && tokenizer["model"]["merges"].is_array();
  if (!complete) fail("tokenizer.json: needs model.vocab and model.merges");
  const Vocabulary vocabulary = read_vocabulary(tokenizer, config.vocab_size);
  writer.add_string("tokenizer.ggml.model", "gpt2");
  writer.add_string("tokenizer.ggml.pre", "qwen35");
  writer.add_string_array("tokenizer.ggml.tokens", vocabulary.tokens);
  writer.add_i32_array("tokenizer.ggml.token_type", vocabulary.types);
  writer.add_string_array("tokenizer.ggml.merges", read_merges(tokenizer["model"]["merges"]));
  if (!config.eos_token_ids.empty()) {
    writer.add_u32("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(config.eos_token_ids[0]));
  }
  writer.add_bool("tokenizer.ggml.add_bos_token", false);
  const auto chat = companions.find("chat_template.jinja");
  if (chat != companions.end()) writer.add_string("tokenizer.chat_template", chat->second);
}

}  // namespace lockstep
