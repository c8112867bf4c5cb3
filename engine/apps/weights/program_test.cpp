// The program as people run it, and the golden model in every format judged by an oracle that the
// engine had no part in (golden/recipe/numpy_forward.py).
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/model/tests/test_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const std::string kGolden = LOCKSTEP_GOLDEN_DIR "/tiny-qwen3_5";

ProcessResult run(const std::string& program, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), std::string(LOCKSTEP_BIN_DIR "/lockstep-") + program);
  return run_process(arguments);
}

// One clear line on stderr and this exit code.
void expect_refused(const ProcessResult& result, int exit_code, const std::string& word) {
  EXPECT_EQ(result.exit_code, exit_code) << result.stderr_text;
  EXPECT_NE(result.stderr_text.find(word), std::string::npos) << result.stderr_text;
  EXPECT_EQ(std::count(result.stderr_text.begin(), result.stderr_text.end(), '\n'), 1)
      << result.stderr_text;
}

void numpy_oracle(const fs::path& model, const fs::path& prefix) {
  const ProcessResult result = run_process(
      {"/usr/bin/python3", LOCKSTEP_GOLDEN_DIR "/recipe/numpy_forward.py", "--model",
       model.string(), "--prompts", LOCKSTEP_GOLDEN_DIR "/oracle/public.json", "--names",
       "utf8-mixed,chat-think", "--n-tokens", "24", "--out", prefix.string()},
      std::chrono::minutes(5), {{"OPENBLAS_NUM_THREADS", "1"}});
  ASSERT_EQ(result.exit_code, 0) << result.stderr_text;
}

ProcessResult compare(const fs::path& model, const fs::path& oracle, int tp) {
  return run("compare", {"--model", model.string(), "--oracle", oracle.string(), "--tp",
                         std::to_string(tp), "--precision", "fp32"});
}

TEST(WeightsProgram, ShardVerifyJoinInspect) {
  const TestDir dir;
  const std::string shards = (dir / "shards").string();
  ASSERT_EQ(run("weights", {"shard", "--model", kGolden, "--tp", "2", "--out", shards}).exit_code,
            0);
  const ProcessResult verified = run("weights", {"verify", "--model", kGolden, "--shards", shards});
  EXPECT_EQ(verified.exit_code, 0) << verified.stderr_text;
  EXPECT_NE(verified.stdout_text.find("241 tensors in 530 blocks"), std::string::npos)
      << verified.stdout_text;
  EXPECT_EQ(
      run("weights", {"join", "--shards", shards, "--out", (dir / "joined").string()}).exit_code,
      0);
  const std::string digests = (dir / "digests.json").string();
  EXPECT_EQ(run("weights", {"verify", "--model", kGolden, "--write-digests", digests}).exit_code,
            0);
  EXPECT_EQ(run("weights", {"verify", "--model", (dir / "joined").string(), "--digests", digests})
                .exit_code,
            0);
  const ProcessResult inspected = run("weights", {"inspect", "--model", kGolden, "--json"});
  EXPECT_EQ(inspected.exit_code, 0);
  EXPECT_NE(inspected.stdout_text.find("nvfp4-modelopt"), std::string::npos);
  // A rank that starts from its shards gives the tokens of one that cuts for itself.
  const std::string jobs = (dir / "jobs.jsonl").string();
  write_file_atomically(
      jobs, std::string(R"({"name":"a","ids":[5,6,7,8],"max_tokens":8,"ignore_eos":true})") + "\n");
  std::vector<std::string> lines;
  for (const std::string& given : {std::string(), shards}) {
    const std::string out = (dir / ("out" + std::to_string(lines.size()))).string();
    std::vector<std::string> arguments = {"--model", kGolden, "--jobs", jobs,
                                          "--out",   out,     "--tp",   "2"};
    if (!given.empty()) arguments.insert(arguments.end(), {"--shards", given});
    const ProcessResult result = run("generate", arguments);
    ASSERT_EQ(result.exit_code, 0) << result.stderr_text;
    const std::string line = read_text_file(out + "/results.jsonl");
    lines.push_back(line.substr(0, line.find(']')));
  }
  EXPECT_EQ(lines[0], lines[1]);
}

// The largest memory that any child of this process had so far, mapped files included.
int64_t peak_child_bytes() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

TEST(WeightsProgram, ShardingTakesFarLessMemoryThanOneShard) {
  const TestDir dir;
  auto geometry = nlohmann::json::parse(read_text_file(kGolden + "/config.json"));
  geometry.erase("quantization_config");
  geometry["text_config"]["hidden_size"] = 512;
  geometry["text_config"]["intermediate_size"] = 2048;
  geometry["text_config"]["num_hidden_layers"] = 16;
  geometry["text_config"]["vocab_size"] = 8192;
  geometry["vision_config"]["out_hidden_size"] = 512;
  write_file_atomically(dir / "geometry.json", geometry.dump());
  const std::string model = (dir / "model").string();
  ASSERT_EQ(run("weights", {"synth", "--geometry", (dir / "geometry.json").string(), "--format",
                            "bf16", "--seed", "1", "--out", model})
                .exit_code,
            0);
  const fs::path shards = dir / "shards";
  ASSERT_EQ(
      run("weights", {"shard", "--model", model, "--tp", "2", "--out", shards.string()}).exit_code,
      0);
  const auto shard_bytes = static_cast<int64_t>(fs::file_size(shards / "shard-0-of-2.safetensors"));
  EXPECT_GT(shard_bytes, 60'000'000);
  EXPECT_LT(2 * peak_child_bytes(), shard_bytes) << peak_child_bytes();
  RecordProperty("peak_share_of_a_shard_percent",
                 static_cast<int>(100 * peak_child_bytes() / shard_bytes));
  // A program that holds half a shard is seen.
  run_process({"/usr/bin/python3", "-c", "bytearray(" + std::to_string(shard_bytes / 2) + ")"});
  EXPECT_GE(2 * peak_child_bytes(), shard_bytes);
}

TEST(WeightsProgram, RefusesWithOneLine) {
  const TestDir dir;
  expect_refused(
      run("weights", {"shard", "--model", (dir / "none").string(), "--out", (dir / "x").string()}),
      1, "none");
  expect_refused(run("weights", {"verify", "--model", kGolden}), 2, "nothing to check");
  expect_refused(run("weights", {"verify", "--model", kGolden, "--shards", dir.path().string()}), 1,
                 "holds no shard");
  expect_refused(run("weights", {"inspect", "--model", "synth:none"}), 1, "none");
  EXPECT_EQ(run("weights", {"convert", "--model", kGolden, "--to", "int3", "--out", "x"}).exit_code,
            2);
  EXPECT_EQ(run("weights", {}).exit_code, 2);
}

TEST(WeightsProgram, ASyntheticModelRunsWithoutFilesAndAsItsFiles) {
  const TestDir dir;
  const std::string jobs = (dir / "jobs.jsonl").string();
  write_file_atomically(
      jobs, std::string(R"({"name":"a","ids":[5,6,7,8],"max_tokens":8,"ignore_eos":true})") + "\n");
  const std::string shards = (dir / "shards").string();
  ASSERT_EQ(run("weights", {"synth", "--geometry", "qwen3.8-27b-narrow", "--format", "nvfp4-fp8",
                            "--seed", "4", "--tp", "2", "--out", shards})
                .exit_code,
            0);
  std::vector<std::string> tokens;
  const auto generate = [&](std::vector<std::string> arguments) {
    const std::string out = (dir / ("out" + std::to_string(tokens.size()))).string();
    arguments.insert(arguments.end(), {"--jobs", jobs, "--out", out});
    const ProcessResult result = run("generate", arguments);
    ASSERT_EQ(result.exit_code, 0) << result.stderr_text;
    const std::string line = read_text_file(out + "/results.jsonl");
    tokens.push_back(line.substr(0, line.find(']')));
  };
  const std::string spec = "synth:qwen3.8-27b-narrow:nvfp4-fp8:4";
  generate({"--model", spec, "--tp", "1"});
  generate({"--model", spec, "--tp", "2"});
  generate({"--model", shards, "--shards", shards, "--tp", "2"});
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(tokens[0], tokens[1]);
  EXPECT_EQ(tokens[0], tokens[2]);
}

class EveryFormat : public testing::TestWithParam<std::string> {};

TEST_P(EveryFormat, EngineAgreesWithAnOracleThatItDidNotMake) {
  const TestDir dir;
  const fs::path model = dir / "model";
  const ProcessResult converted =
      run("weights", {"convert", "--model", kGolden, "--to", GetParam(), "--out", model.string()});
  ASSERT_EQ(converted.exit_code, 0) << converted.stderr_text;
  numpy_oracle(model, dir / "oracle");
  for (const int tp : {1, 2}) {
    const ProcessResult judged = compare(model, dir / "oracle", tp);
    EXPECT_EQ(judged.exit_code, 0) << judged.stdout_text << judged.stderr_text;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, EveryFormat,
                         testing::Values("bf16", "nvfp4-fp8", "nvfp4-fp8-ct", "fp8-channel",
                                         "fp8-block", "int4-g64", "int4-g128", "gptq", "awq"),
                         [](const auto& format) {
                           std::string name = format.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

// The check above must be able to fail: another rounding of the same weights is another model.
TEST(WeightsProgram, AnOracleOfAnotherFormatIsNoticed) {
  const TestDir dir;
  for (const char* format : {"int4-g64", "int4-g128"}) {
    ASSERT_EQ(run("weights",
                  {"convert", "--model", kGolden, "--to", format, "--out", (dir / format).string()})
                  .exit_code,
              0);
  }
  numpy_oracle(dir / "int4-g64", dir / "oracle");
  EXPECT_EQ(compare(dir / "int4-g128", dir / "oracle", 1).exit_code, 1);
}

}  // namespace
}  // namespace lockstep
