// Tensors that a job puts in place of a tap.
#include "engine/rank/injection.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/temp_dir.h"
#include "engine/model/safetensors.h"
#include "engine/rank/jobs.h"
#include "engine/rank/tests/golden_engine.h"

namespace lockstep::testing {
namespace {

constexpr int64_t kPrompt = 150;  // two chunks and a piece on a grid of 64
constexpr int64_t kTokens = 6;

EngineOptions options_for(Precision precision) {
  EngineOptions options;
  options.precision = precision;
  options.kv_type = precision == Precision::fp32 ? KvType::fp32 : KvType::bf16;
  options.prefill_grid = 64;
  options.max_context = 256;
  options.prefix_cache_bytes = int64_t{16} << 20;
  return options;
}

std::vector<int32_t> prompt_of(const std::string& name) {
  std::vector<int32_t> prompt = oracle_prompt(name);
  prompt.resize(kPrompt);
  return prompt;
}

Request request_for(const std::string& name, std::vector<int32_t> prompt) {
  Request request = greedy_request(name, std::move(prompt), kTokens);
  request.n_logits = 16;
  return request;
}

std::shared_ptr<const Injection> read_all(const std::filesystem::path& file,
                                          std::vector<std::string> names = {"*"}) {
  return std::make_shared<const Injection>(file, TapRequest{std::move(names)},
                                           golden_model().config);
}

// Runs the prompt with the taps `names` at every position and writes them to `file`.
RequestResult run_tapped(const EngineOptions& options, Request request,
                         std::vector<std::string> names, const std::filesystem::path& file) {
  request.taps = TapRequest{std::move(names), kPrompt};
  SoloEngine engine(options);
  RequestResult result = engine->run({request})[0];
  engine->taps(0)->write(file);
  return result;
}

void expect_same_logits(const RequestResult& a, const RequestResult& b, size_t n_steps) {
  ASSERT_GE(std::min(a.logits.size(), b.logits.size()), n_steps);
  for (size_t step = 0; step < n_steps; ++step) {
    EXPECT_EQ(a.logits[step].ids, b.logits[step].ids) << "step " << step;
    EXPECT_EQ(a.logits[step].values, b.logits[step].values) << "step " << step;
  }
}

// What enters the layers decides everything after it: with another prompt's embeddings put in, the
// run is that prompt's, in prefill and in decode.
TEST(Injection, EmbeddingsOfAnotherPromptGiveItsRun) {
  const TempDir folder;
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const EngineOptions options = options_for(precision);
    const auto file = folder.path() / "embed.safetensors";
    const RequestResult expected = run_tapped(options, request_for("a", prompt_of("code-3k")),
                                              {"embed", "decode/embed"}, file);
    Request request = request_for("b", prompt_of("zh-2k"));
    SoloEngine engine(options);
    ASSERT_NE(engine->run({request})[0].ids, expected.ids);
    request.injection = read_all(file, {"embed", "decode/*"});
    expect_same_logits(engine->run({request})[0], expected, kTokens);
    EXPECT_EQ(engine->run({request})[0].cache_hit_tokens, 0);
    // Nothing of it stays in the cache for the prompt itself.
    request.injection = nullptr;
    SoloEngine fresh(options);
    EXPECT_EQ(engine->run({request})[0].ids, fresh->run({request})[0].ids);
  }
}

// Every tensor of a run put into the same run changes nothing; the last layer's output or the final
// norm of another prompt gives its first token.
TEST(Injection, EveryPointTakesEffect) {
  const TempDir folder;
  const EngineOptions options = options_for(Precision::bf16);
  const auto own = folder.path() / "own.safetensors";
  const auto other = folder.path() / "other.safetensors";
  const std::vector<std::string> all = {"embed", "layers.*", "final_norm", "decode/*"};
  Request request = request_for("b", prompt_of("zh-2k"));
  const RequestResult plain = run_tapped(options, request, all, own);
  const RequestResult a = run_tapped(options, request_for("a", prompt_of("code-3k")), all, other);
  SoloEngine engine(options);
  request.injection = read_all(own);
  expect_same_logits(engine->run({request})[0], plain, kTokens);
  const int last = golden_model().config.n_layers() - 1;
  for (const std::string& name : {fmt::format("layers.{}.out", last), std::string("final_norm")}) {
    request.injection = read_all(other, {name});
    expect_same_logits(engine->run({request})[0], a, 1);
  }
  for (const char* name : {"layers.3.mixer", "layers.3.mlp", "decode/layers.0.out"}) {
    request.injection = read_all(other, {name});
    const RequestResult changed = engine->run({request})[0];
    EXPECT_NE(changed.logits[1].values, plain.logits[1].values) << name;
  }
}

// Taps record what was computed, not what was put in, on one rank and on two.
TEST(Injection, TapsRecordWhatWasComputed) {
  const TempDir folder;
  const EngineOptions options = options_for(Precision::bf16);
  const auto file = folder.path() / "a.safetensors";
  const auto tapped = folder.path() / "tapped.safetensors";
  run_tapped(options, request_for("a", prompt_of("code-3k")), {"layers.2.out", "layers.3.*"}, file);
  Request request = request_for("b", prompt_of("zh-2k"));
  request.injection = read_all(file, {"layers.2.out", "layers.3.out"});
  const RequestResult solo = run_tapped(options, request, {"layers.3.*"}, tapped);
  // Layer 3 on A's input at every position: its rows are A's, though the rest of the run is B's.
  const SafetensorsFile a(file);
  const SafetensorsFile b(tapped);
  for (const char* name : {"layers.3.mixer", "layers.3.mlp", "layers.3.out"}) {
    EXPECT_EQ(to_float_vector(*a.find(name)), to_float_vector(*b.find(name))) << name;
  }
  const PairResults pair = run_pair(options, {request});
  expect_same_logits(pair.ranks[0][0], solo, kTokens);
  expect_same_logits(pair.ranks[1][0], solo, kTokens);
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

void write_tensor(const std::filesystem::path& file, const std::string& name, int64_t rows,
                  int64_t width, DType dtype = DType::F32) {
  const std::vector<std::byte> bytes(static_cast<size_t>(rows * width * dtype_bytes(dtype)));
  SafetensorsWriter writer;
  writer.add(name, dtype, {rows, width}, bytes);
  writer.write(file);
}

TEST(Injection, RefusesWhatCannotBePutIn) {
  const TempDir folder;
  const auto file = folder.path() / "x.safetensors";
  const int64_t hidden = golden_model().config.hidden_size;
  const auto read = [&] { read_all(file); };
  write_tensor(file, "layers.8.out", 1, hidden);
  EXPECT_NE(refusal(read).find("layers.8.out cannot be put in"), std::string::npos);
  write_tensor(file, "state/layers.0.gdn_state", 1, hidden);
  EXPECT_NE(refusal(read).find("cannot be put in"), std::string::npos);
  write_tensor(file, "layers.0.out", 2, hidden - 1);
  EXPECT_NE(refusal(read).find("has shape [2, 255], expected [positions, 256]"), std::string::npos);
  write_tensor(file, "layers.0.out", 2, hidden, DType::I32);
  EXPECT_NE(refusal(read).find("layers.0.out: is I32"), std::string::npos);
  write_tensor(file, "layers.0.out", kPrompt + 1, hidden);
  EXPECT_EQ(refusal(read), "accepted");
  EXPECT_NE(refusal([&] { read_all(file, {"layers.1.out"}); }).find("holds no tensor"),
            std::string::npos);
  SoloEngine engine(options_for(Precision::bf16));
  Request request = request_for("long", prompt_of("zh-2k"));
  request.injection = read_all(file);
  EXPECT_NE(refusal([&] { engine->run({request}); }).find("the prompt has 150 positions"),
            std::string::npos);
  write_tensor(file, "decode/embed", kTokens + 1, hidden);
  request.injection = read_all(file);
  EXPECT_NE(refusal([&] { engine->run({request}); }).find("the decode phase has 6 positions"),
            std::string::npos);
}

TEST(Injection, JobFilesNameIt) {
  const std::string model = std::string(LOCKSTEP_GOLDEN_DIR) + "/tiny-qwen3_5";
  const ModelText text(model);
  const ImageReader images(model, golden_model().config);
  const TempDir folder;
  write_tensor(folder.path() / "x.safetensors", "embed", 1, golden_model().config.hidden_size);
  const auto read = [&](const std::string& inject) {
    const auto file = folder.path() / "jobs.jsonl";
    std::string lines;
    for (const char* name : {"a", "b"}) {
      lines += fmt::format(R"({{"name": "{}", "ids": [1, 2], "inject": {}}})", name, inject) + "\n";
    }
    write_file_atomically(file, lines);
    return read_jobs(file, {golden_model().config, text, images}, {}, {});
  };
  const auto requests = read(R"({"file": "x.safetensors"})");
  ASSERT_NE(requests.at(0).injection, nullptr);
  EXPECT_EQ(requests.at(0).injection, requests.at(1).injection);
  EXPECT_NE(requests.at(0).injection->find("embed"), nullptr);
  EXPECT_NE(read(R"({"file": "x.safetensors", "names": ["em*"]})").at(1).injection, nullptr);
  const auto complaint = [&](const std::string& inject) { return refusal([&] { read(inject); }); };
  EXPECT_NE(complaint(R"("x.safetensors")").find("inject must be an object"), std::string::npos);
  EXPECT_NE(complaint(R"({"names": ["*"]})").find("file must be the name"), std::string::npos);
  EXPECT_NE(complaint(R"({"file": "y.safetensors"})").find("y.safetensors"), std::string::npos);
  EXPECT_NE(complaint(R"({"file": "x.safetensors", "at": 1})").find("unknown field at"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::testing
