// Files that a tokenizer must refuse, each with one clear line.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include <functional>

#include "engine/base/error.h"
#include "engine/text/text_test_support.h"
#include "engine/text/tokenizer.h"

namespace lockstep {
namespace {

std::string refusal(const std::string& tokenizer_json, const std::string& config_json = "") {
  try {
    Tokenizer::from_json(tokenizer_json, config_json, "file");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::string refusal_after(const std::function<void(nlohmann::json&)>& change) {
  nlohmann::json file = nlohmann::json::parse(golden_tokenizer_text());
  change(file);
  return refusal(file.dump());
}

TEST(TokenizerJson, AcceptsTheGoldenFile) {
  EXPECT_EQ(refusal_after([](auto&) {}), "accepted");
}

TEST(TokenizerJson, NamesWhatIsWrong) {
  EXPECT_EQ(refusal(""), "file: not valid JSON");
  EXPECT_EQ(refusal("[1]"), "file: not a JSON object");
  EXPECT_EQ(refusal("{}"), "file: pre_tokenizer is missing");
  EXPECT_EQ(refusal_after([](auto& f) { f.erase("model"); }), "file: model is missing");
  EXPECT_EQ(refusal_after([](auto& f) { f["model"]["type"] = "Unigram"; }),
            "file: model.type is not BPE");
  EXPECT_EQ(refusal_after([](auto& f) { f["model"]["byte_fallback"] = true; }),
            "file: model.byte_fallback is true, which this model family never has");
  EXPECT_EQ(refusal_after([](auto& f) { f["model"]["unk_token"] = "<unk>"; }),
            "file: model.unk_token is set, which this model family never does");
  EXPECT_EQ(refusal_after([](auto& f) { f["normalizer"]["type"] = "NFKC"; }),
            "file: normalizer is neither NFC nor null");
  EXPECT_EQ(refusal_after([](auto& f) {
              f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\w+";
            }),
            "file: pre_tokenizer has a regular expression that is not this model family's");
  EXPECT_EQ(refusal_after([](auto& f) { f["decoder"]["type"] = "WordPiece"; }),
            "file: decoder.type is not ByteLevel");
  // The last: a table of that many tokens for a file that holds a few thousand.
  for (const nlohmann::json& id :
       {nlohmann::json(-1), nlohmann::json(1e30), nlohmann::json(2000000)}) {
    const std::string why = refusal_after([&](auto& f) { f["model"]["vocab"]["A"] = id; });
    EXPECT_TRUE(why.starts_with("file: token \"A\" has an id outside 0..")) << id << why;
  }
  EXPECT_EQ(refusal_after([](auto& f) { f["model"]["vocab"]["A"] = f["model"]["vocab"]["B"]; }),
            "file: id 33 is given to two tokens");
  EXPECT_EQ(refusal_after([](auto& f) { f["model"]["vocab"].erase("A"); }),
            "file: model.vocab lacks the token \"A\" of byte 0x41");
  EXPECT_EQ(refusal_after([](auto& f) {
              f["model"]["merges"][5] = {"A", "\u20ac"};
            }),
            "file: model.vocab lacks the token \"\\u20ac\" of merge 5");
  EXPECT_EQ(refusal_after([](auto& f) { f["model"]["merges"][5] = 7; }),
            "file: the entry of merge 5 is not a pair of tokens");
  EXPECT_EQ(refusal_after([](auto& f) { f["model"]["merges"][5] = f["model"]["merges"][4]; }),
            "file: the pair of merge 5 is listed before");
  EXPECT_EQ(refusal_after([](auto& f) { f["added_tokens"][0]["content"] = ""; }),
            "file: the added token with id 4064 is empty");
  EXPECT_EQ(refusal_after([](auto& f) { f["added_tokens"][0]["lstrip"] = true; }),
            "file: added token \"<|endoftext|>\" has lstrip set, which is not supported");
  EXPECT_EQ(refusal_after([](auto& f) { f["added_tokens"][0]["id"] = 5; }),
            "file: id 5 is given to two tokens");
}

TEST(TokenizerJson, ReadsMergesOfOlderFiles) {
  EXPECT_EQ(refusal_after([](auto& f) {
              for (auto& merge : f["model"]["merges"]) {
                merge = merge[0].template get<std::string>() + " " +
                        merge[1].template get<std::string>();
              }
            }),
            "accepted");
}

TEST(TokenizerJson, TakesAddedTokensFromTheConfigToo) {
  const std::string file = golden_tokenizer_text();
  const std::string config =
      R"({"added_tokens_decoder": {"4080": {"content": "<extra>", "special": true},
    "4066": {"content": "<|im_end|>", "special": true}}})";
  const Tokenizer tokenizer = Tokenizer::from_json(file, config, "file");
  EXPECT_EQ(tokenizer.encode("<extra>"), std::vector<int32_t>{4080});
  EXPECT_TRUE(tokenizer.is_special(4080));
  EXPECT_EQ(refusal(file, R"({"added_tokens_decoder": {"9": {"content": "<|im_end|>"}}})"),
            "file: added token \"<|im_end|>\" has the ids 4066 and 9");
  EXPECT_TRUE(refusal(file, R"({"added_tokens_decoder": {"x": {"content": "<n>"}}})")
                  .starts_with("file: token \"<n>\" has an id outside 0.."));
  EXPECT_EQ(refusal(file, "{"), "tokenizer_config.json beside file: not valid JSON");
}

// The longest of several added tokens that begin at one place wins.
TEST(TokenizerJson, LongestAddedTokenWins) {
  const Tokenizer tokenizer = Tokenizer::from_json(
      golden_tokenizer_text(),
      R"({"added_tokens_decoder": {"4080": {"content": "<a>"}, "4081": {"content": "<a><b>"},
                                   "4082": {"content": "<b><c>"}}})",
      "file");
  EXPECT_EQ(tokenizer.encode("<a><b><c>"),
            (std::vector<int32_t>{4081, tokenizer.encode("<c>")[0], tokenizer.encode("<c>")[1],
                                  tokenizer.encode("<c>")[2]}));
  EXPECT_EQ(tokenizer.encode("<a><b"), tokenizer.encode("<a><b"));
}

}  // namespace
}  // namespace lockstep
