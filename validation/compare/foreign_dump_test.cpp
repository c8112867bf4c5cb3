// Dumps of other programs: .npy files of every kind, names mapped, shapes brought into form, and
// every way in which that can go wrong named.
#include "validation/compare/foreign_dump.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"
#include "validation/compare/npy_file.h"
#include "validation/testing/synthetic_run.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::random_tensor;

// The bytes that numpy.save writes for a C-order array.
std::string npy(const std::string& descr, const std::string& shape, const std::string& data,
                const std::string& order = "False", char version = 1) {
  std::string dict =
      "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  const size_t prefix = version == 1 ? 10 : 12;
  dict.append((64 - (prefix + dict.size() + 1) % 64) % 64, ' ');
  dict += '\n';
  std::string text = std::string("\x93NUMPY") + version + '\0';
  text += static_cast<char>(dict.size() & 0xff);
  text += static_cast<char>(dict.size() >> 8);
  if (version > 1) text.append(2, '\0');
  return text + dict + data;
}

template <typename T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

FloatTensor parse(const std::string& text) {
  return parse_npy(std::as_bytes(std::span(text.data(), text.size())), "x.npy");
}

std::string complaint(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Npy, EveryTypeOrderAndVersion) {
  const std::vector<float> values = {1, 2, 3, 4, 5, -6.5};
  for (const char version : {char{1}, char{2}, char{3}}) {
    const FloatTensor tensor = parse(npy("<f4", "(2, 3)", raw(values), "False", version));
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(tensor.values, values);
  }
  EXPECT_EQ(parse(npy("<f8", "(6,)", raw<double>({1, 2, 3, 4, 5, -6.5}))).values, values);
  EXPECT_EQ(parse(npy("<f2", "(2,)", raw<uint16_t>({0x3c00, 0xc680}))).values,
            (std::vector<float>{1, -6.5}));
  EXPECT_EQ(parse(npy("<V2", "(2,)", raw<uint16_t>({0x3f80, 0xc0d0}))).values,
            (std::vector<float>{1, -6.5}));
  EXPECT_EQ(parse(npy("<f4", "(2, 3)", raw<float>({1, 4, 2, 5, 3, -6.5}), "True")).values, values);
  EXPECT_EQ(parse(npy("<f4", "()", raw<float>({7}))).shape.size(), 0u);
}

TEST(Npy, BrokenFilesAreNamed) {
  const std::string good = npy("<f4", "(2, 3)", raw<float>({1, 2, 3, 4, 5, 6}));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {good.substr(0, 5), "is not a .npy file"},
      {good.substr(0, good.size() - 4), "20 bytes of data"},
      {good + "1234", "28 bytes of data"},
      {npy(">f4", "(1,)", "1234"), "holds >f4"},
      {npy("<i8", "(1,)", "12345678"), "holds <i8"},
      {npy("<f4", "(99999999999, 99999999999)", "1234"), "more data than the file has"},
      {npy("<f4", "(-1,)", "1234"), "no number"},
      {npy("<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 1)", "1234"), "more than 8 dimensions"},
      {npy("<f4", "2", "1234"), "'shape' is no tuple"},
      {std::string("\x93NUMPY\x01\0\xff\xff{", 11) + "1", "longer than the file"},
      {std::string("\x93NUMPY\x09\0\x01\0{ ", 12), "version 9"},
  };
  for (const auto& [text, expected] : cases) {
    const std::string message = complaint([&, file = text] { parse(file); });
    EXPECT_NE(message.find(expected), std::string::npos) << message << " for " << expected;
    EXPECT_TRUE(message.starts_with("x.npy: ")) << message;
  }
}

NameMap map_of(const std::string& rules, const std::string& more = "") {
  return parse_name_map(R"({"version": 1, "names": [)" + rules + "]" + more + "}", "map.json");
}

TEST(NameMapFile, RulesRenameInOrder) {
  const NameMap map = map_of(R"({"from": "hidden_states.0", "to": "embed"},
                                {"from": "hidden_states.*", "to": "layers.*.out", "shift": -1},
                                {"from": "lm_head*", "drop": true})");
  EXPECT_EQ(rename(map, "hidden_states.0").tap, "embed");
  EXPECT_EQ(rename(map, "hidden_states.12").tap, "layers.11.out");
  EXPECT_TRUE(rename(map, "lm_head.weight").rule->drop);
  EXPECT_NE(complaint([&] { rename(map, "other"); }).find("no rule for tensor other"),
            std::string::npos);
  EXPECT_NE(complaint([&] { rename(map, "hidden_states.x"); }).find("shift needs a number"),
            std::string::npos);
}

TEST(NameMapFile, MistakesAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"from": "a"})", R"(needs either "to" or "drop")"},
      {R"({"from": "a", "to": "b", "drop": true})", R"(needs either "to" or "drop")"},
      {R"({"from": "a*b*", "to": "c"})", "at most one"},
      {R"({"from": "a", "to": "c*"})", "no more than that"},
      {R"({"from": "a", "to": "b", "rows": 3})", R"(unknown member "rows")"},
      {R"({"from": "a", "to": "b", "last": -1})", R"("last" must be a number from 0)"},
      {R"({"from": "a", "to": "b", "join": "mean"})", R"("join" must be)"},
      {"3", "must be an object"},
  };
  for (const auto& [rule, expected] : cases) {
    const std::string message = complaint([&, text = rule] { map_of(text); });
    EXPECT_NE(message.find(expected), std::string::npos) << message;
    EXPECT_TRUE(message.starts_with("map.json: names[0]: ")) << message;
  }
  EXPECT_NE(complaint([] { parse_name_map(R"({"version": 2})", "m"); }).find("\"version\""),
            std::string::npos);
  EXPECT_NE(complaint([] { parse_name_map("[", "m"); }).find("not a JSON object"),
            std::string::npos);
  EXPECT_NE(complaint([] { map_of("", R"(, "more": 1)"); }).find("more"), std::string::npos);
}

TEST(Reshape, EveryStep) {
  const FloatTensor tensor{{1, 4, 2}, {0, 1, 2, 3, 4, 5, 6, 7}};
  const auto shaped = [&](const std::string& members) {
    const NameMap map = map_of(R"({"from": "a", "to": "b", )" + members + "}");
    return reshape(tensor, map.rules[0], "x");
  };
  EXPECT_EQ(shaped(R"("squeeze": true)").shape, (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(shaped(R"("squeeze": true, "last": 2)").values, (std::vector<float>{4, 5, 6, 7}));
  EXPECT_EQ(shaped(R"("index": 0, "first": 1)").values, (std::vector<float>{0, 1}));
  const FloatTensor swapped = shaped(R"("squeeze": true, "transpose": true)");
  EXPECT_EQ(swapped.shape, (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(swapped.values, (std::vector<float>{0, 2, 4, 6, 1, 3, 5, 7}));
  for (const char* bad : {R"("index": 1)", R"("last": 2)", R"("transpose": true)"}) {
    EXPECT_NE(complaint([&] { shaped(bad); }).find("x: shape [1, 4, 2]"), std::string::npos) << bad;
  }
}

TEST(JoinParts, SameConcatAndSum) {
  const std::vector<FloatTensor> parts = {{{2, 2}, {1, 2, 3, 4}}, {{2, 1}, {5, 6}}};
  NameRule rule;
  bool differ = false;
  rule.join = Join::concat;
  rule.join_dim = 1;
  EXPECT_EQ(join_parts(parts, rule, "x", differ).values, (std::vector<float>{1, 2, 5, 3, 4, 6}));
  rule.join_dim = 0;
  EXPECT_NE(complaint([&] { join_parts(parts, rule, "x", differ); }).find("do not fit"),
            std::string::npos);
  rule.join = Join::sum;
  EXPECT_EQ(join_parts({parts[0], parts[0]}, rule, "x", differ).values,
            (std::vector<float>{2, 4, 6, 8}));
  rule.join = Join::same;
  join_parts({parts[0], parts[0]}, rule, "x", differ);
  EXPECT_FALSE(differ);
  join_parts({parts[0], {{2, 2}, {1, 2, 3, 5}}}, rule, "x", differ);
  EXPECT_TRUE(differ);
}

// A dump as Hugging Face makes it: the residual streams of all positions with a batch dimension,
// one .npy each, in folders; judged against an oracle's prompt.
class ForeignDump : public ::testing::Test {
 protected:
  ForeignDump() : run_(testing::make_synthetic_run(Precision::fp32)) {
    testing::write_oracle(run_.oracle, dir_.path() / "oracle");
    fs::create_directories(dir_.path() / "hf" / "layers");
    const OraclePrompt& prompt = run_.prompt("alpha");
    save("embed_tokens", prompt.taps.at("embed"));
    save("layers/0", prompt.taps.at("layers.0.out"));
    save("layers/1", prompt.taps.at("layers.1.out"));
    save("norm", prompt.taps.at("final_norm"));
    save("rotary", random_tensor({3, 4}, 9));
  }

  // Two positions in front that the oracle did not record, and a batch dimension.
  void save(const std::string& name, const FloatTensor& tensor) {
    std::vector<float> values(2 * static_cast<size_t>(tensor.row_length()), 7.0f);
    values.insert(values.end(), tensor.values.begin(), tensor.values.end());
    const std::string shape = fmt::format("(1, {}, {})", tensor.shape[0] + 2, tensor.row_length());
    write_file_atomically(dir_.path() / "hf" / (name + ".npy"), npy("<f4", shape, raw(values)));
  }

  static std::string map_text(const std::string& only) {
    return R"({"version": 1, "names": [
      {"from": "embed_tokens", "to": "embed", "squeeze": true, "last": 8},
      {"from": "layers/*", "to": "layers.*.out", "squeeze": true, "last": 8},
      {"from": "norm", "to": "final_norm", "squeeze": true, "last": 8},
      {"from": "rotary", "drop": true}], "only": )" +
           only + "}";
  }

  ProcessResult judge(const std::string& only = R"(["embed", "layers.*.out", "final_norm"])") {
    write_file_atomically(dir_.path() / "map.json", map_text(only));
    return run_process(
        {std::string(LOCKSTEP_BIN_DIR) + "/lockstep-compare", "--json", "--dump",
         (dir_.path() / "hf").string(), "--names", (dir_.path() / "map.json").string(), "--oracle",
         (dir_.path() / "oracle").string(), "--prompt", "alpha"},
        std::chrono::seconds(60));
  }

  TempDir dir_;
  testing::SyntheticRun run_;
};

TEST_F(ForeignDump, AnHonestOnePasses) {
  const ProcessResult result = judge();
  EXPECT_EQ(result.exit_code, 0) << result.stderr_text;
  const auto json = nlohmann::json::parse(result.stdout_text);
  EXPECT_EQ(json["verdict"], "PASS");
  EXPECT_EQ(json["tensors"].size(), 4u);
  EXPECT_FALSE(json["not_checked"].empty());
}

TEST_F(ForeignDump, AWrongLayerFails) {
  FloatTensor wrong = run_.prompt("alpha").taps.at("layers.0.out");
  for (float& value : wrong.values) value *= 1.001f;
  save("layers/0", wrong);
  const ProcessResult result = judge();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(nlohmann::json::parse(result.stdout_text)["first_bad"], "layers.0.out");
}

TEST_F(ForeignDump, WhatIsPromisedAndMissingIsAnError) {
  EXPECT_EQ(judge("[]").exit_code, 3) << "without a promise all taps must be there";
  fs::remove(dir_.path() / "hf" / "norm.npy");
  EXPECT_EQ(judge().exit_code, 3);
  EXPECT_EQ(judge(R"(["embed", "layers.*.out"])").exit_code, 0);
  EXPECT_EQ(judge(R"(["nothing"])").exit_code, 3) << "tensors that nobody asked for";
  save("surprise", random_tensor({8, 32}, 5));
  const ProcessResult result = judge();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.stderr_text.find("no rule for tensor surprise"), std::string::npos);
}

TEST_F(ForeignDump, RanksAreJoined) {
  const FloatTensor whole = random_tensor({8, 32}, 3);
  FloatTensor left{{8, 16}, {}};
  FloatTensor right{{8, 16}, {}};
  for (size_t i = 0; i < whole.values.size(); ++i) {
    (i % 32 < 16 ? left : right).values.push_back(whole.values[i]);
  }
  testing::write_tensors({{"o", left}}, "", dir_.path() / "r0.safetensors");
  testing::write_tensors({{"o", right}}, "", dir_.path() / "r1.safetensors");
  const std::vector<fs::path> ranks = {dir_.path() / "r0.safetensors",
                                       dir_.path() / "r1.safetensors"};
  const TapDump dump = read_foreign_dump(
      ranks, map_of(R"({"from": "o", "to": "layers.0.mixer", "join": "concat:1"})"));
  EXPECT_EQ(dump.taps.at("layers.0.mixer").values, whole.values);
  const TapDump same = read_foreign_dump(ranks, map_of(R"({"from": "o", "to": "layers.0.mixer"})"));
  EXPECT_EQ(same.rank_differences, std::vector<std::string>{"layers.0.mixer"});
  const std::string twice = complaint([&] {
    testing::write_tensors({{"o", left}, {"p", left}}, "", dir_.path() / "r0.safetensors");
    read_foreign_dump({ranks[0]}, map_of(R"({"from": "*", "to": "embed"})"));
  });
  EXPECT_NE(twice.find("both become tap embed"), std::string::npos) << twice;
}

}  // namespace
}  // namespace lockstep
