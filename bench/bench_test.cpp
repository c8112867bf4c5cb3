// Arithmetic of the benchmarks, their job files and their JSON. Nothing here looks at a clock's
// value.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/cpu/engine_bench.h"
#include "bench/cpu/results.h"
#include "bench/cpu/roof_table.h"
#include "bench/cpu/roofs.h"
#include "bench/material.h"
#include "bench/timer.h"
#include "bench/work.h"
#include "engine/base/error.h"
#include "engine/base/process.h"
#include "engine/device/device.h"
#include "engine/ops/common/cpu_target.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

const std::string kGolden = LOCKSTEP_GOLDEN_DIR;

ModelConfig golden_config() {
  return load_model_config(kGolden + "/tiny-qwen3_5");
}

ProcessResult bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), std::string(LOCKSTEP_BIN_DIR) + "/lockstep-bench");
  return run_process(arguments);
}

TEST(Work, CountsAMultiplyAddAsTwo) {
  EXPECT_EQ(linear_flops(3, 5, 7), 2 * 3 * 5 * 7);
  EXPECT_EQ(gated_delta_flops(2, 4, 8, 3), 3 * 2 * 6 * 4 * 8);
}

TEST(Work, AttentionCountsVisiblePositionsOneByOne) {
  for (const int64_t first : {0, 1, 37}) {
    for (const int64_t n : {1, 4, 33}) {
      int64_t expected = 0;
      for (int64_t t = first; t < first + n; ++t) {
        for (int64_t j = 0; j <= t; ++j) expected += 3 * (2 * 16 + 2 * 16);
      }
      EXPECT_EQ(attention_flops(3, 16, first, n), expected);
    }
  }
}

TEST(Work, MatrixBytesAreThoseThatTheMatrixPointsAt) {
  EXPECT_EQ(matrix_bytes(Codec::f32, 3, 32, 0), 3 * 32 * 4);
  EXPECT_EQ(matrix_bytes(Codec::bf16, 3, 32, 0), 3 * 32 * 2);
  EXPECT_EQ(matrix_bytes(Codec::f16, 3, 32, 0), 3 * 32 * 2);
  EXPECT_EQ(matrix_bytes(Codec::fp8, 3, 32, 0), 3 * 32 + 3 * 4);
  EXPECT_EQ(matrix_bytes(Codec::fp8_block, 129, 130, 0), 129 * 130 + 4 * 2 * 2);
  EXPECT_EQ(matrix_bytes(Codec::nvfp4, 3, 32, 0), 3 * 16 + 3 * 2 + 3 * 4);
  EXPECT_EQ(matrix_bytes(Codec::int4, 3, 256, 128), 3 * 128 + 3 * 2 * 4);
}

TEST(Work, CacheBytesAreWholePages) {
  for (const KvType type : {KvType::fp32, KvType::bf16, KvType::fp16, KvType::int8}) {
    EXPECT_EQ(kv_bytes(type, 2, 256, 3 * kPageTokens), 3 * kv_page_bytes(type, 2, 256));
  }
}

// The golden model by hand: 6 gated-delta and 2 attention layers of hidden size 256.
TEST(Work, PrefillOfTheGoldenModel) {
  const ModelConfig config = golden_config();
  ASSERT_EQ(config.n_layers(), 8);
  ASSERT_EQ(config.n_kv_layers(), 2);
  const int64_t n = 100;
  const int64_t mlp = 3 * 256 * 768;
  const int64_t attention = 256 * (2 * 12 * 256 + 2 * 2 * 256) + 12 * 256 * 256;
  const int64_t gdn = 256 * ((2 * 2 * 128 + 6 * 128) + 6 * 128 + 6 + 6) + 6 * 128 * 256;
  const int64_t attention_layer = 2 * n * (mlp + attention) + 4 * 12 * 256 * (n * (n + 1) / 2);
  const int64_t gdn_layer = 2 * n * (mlp + gdn) + 6 * 6 * 128 * 128 * n;
  const int64_t head = 2 * 4096 * 256;
  EXPECT_EQ(prefill_flops(config, n, false), 2 * attention_layer + 6 * gdn_layer + head);
  const int64_t mtp = attention_layer + 2 * n * 512 * 256;
  EXPECT_EQ(prefill_flops(config, n, true) - prefill_flops(config, n, false), mtp);
}

TEST(Work, WeightBytesLeaveOutWhatDecodeDoesNotRead) {
  const Checkpoint checkpoint(kGolden + "/tiny-qwen3_5");
  const WeightBytes bytes = weight_bytes(checkpoint, golden_config());
  int64_t vision = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (name.starts_with("model.visual.")) vision += tensor->n_bytes();
  }
  const int64_t table = checkpoint.find("lm_head.weight")->n_bytes();
  ASSERT_GT(vision, 0);
  // Everything but vision and the embedding, and the head once more for drafts.
  EXPECT_EQ(bytes.round + bytes.draft, checkpoint.n_bytes() - vision - table + table);
  EXPECT_GT(bytes.draft, table);
}

TEST(Work, TiedHeadIsRead) {
  const Checkpoint checkpoint(kGolden + "/tiny-qwen3_5");
  ModelConfig config = golden_config();
  const WeightBytes untied = weight_bytes(checkpoint, config);
  config.tie_word_embeddings = true;
  EXPECT_EQ(weight_bytes(checkpoint, config).round, untied.round);
}

TEST(Work, DecodeReadsWeightsCacheAndStates) {
  const ModelConfig config = golden_config();
  const int64_t state = 4 * 6 * 128 * 128;
  const int64_t layer = 2 * 2 * 256 * 2 * 110;
  const DecodeWork plain{10, 0, 100, 20, KvType::bf16};
  EXPECT_EQ(decode_bytes(config, {1000, 77}, plain), 10 * (1000 + 2 * layer + 6 * state));
  const DecodeWork drafted{10, 30, 100, 20, KvType::bf16};
  EXPECT_EQ(decode_bytes(config, {1000, 77}, drafted) - decode_bytes(config, {1000, 77}, plain),
            30 * (77 + layer));
}

TEST(Timer, MedianAndSpread) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  const Spread spread = spread_of({5, 9, 7});
  EXPECT_EQ(spread.median, 7);
  EXPECT_EQ(spread.low, 5);
  EXPECT_EQ(spread.high, 9);
}

TEST(Timer, GivesOneNumberASample) {
  int64_t n_calls = 0;
  const auto seconds = time_calls({.n_samples = 4, .min_sample_s = 0}, [&] { ++n_calls; });
  EXPECT_EQ(seconds.size(), 4u);
  EXPECT_EQ(n_calls, 5);  // one to find that a call is enough
}

TEST(Material, EveryCodecDecodesToOrdinaryNumbers) {
  for (int i = 0; i <= static_cast<int>(Codec::int4); ++i) {
    const BenchMatrix matrix(static_cast<Codec>(i), 256, 256, 1);
    std::vector<float> row(256);
    bool any = false;
    for (int64_t n = 0; n < 256; ++n) {
      decode_row(matrix.view(), n, row.data());
      for (const float value : row) {
        ASSERT_TRUE(value >= -8 && value <= 8) << codec_name(matrix.view().codec);
        any = any || value != 0;
      }
    }
    EXPECT_TRUE(any);
  }
}

TEST(Roofs, MeasureEveryTargetOfThisMachine) {
  ThreadPool pool(2);
  for (const std::string& target : available_cpu_targets()) {
    EXPECT_GT(fma_flops_per_s(target, pool), 0);
  }
  EXPECT_THROW(fma_flops_per_s("sse", pool), Error);
  EXPECT_GT(read_bytes_per_s(1000, pool), 0);  // below a block a thread
}

TEST(Roofs, MeasureASizeOnce) {
  ThreadPool pool(1);
  RoofTable roofs(available_cpu_targets().front());
  const double first = roofs.read(1 << 20, pool);
  EXPECT_EQ(roofs.read(1 << 20, pool), first);
  EXPECT_EQ(roofs.fma(pool), roofs.fma(pool));
}

TEST(Engine, SetupsCoverThreadsRanksAndDrafts) {
  CpuBenchSettings settings;
  settings.threads = {1, 2};
  std::vector<std::string> names;
  for (const EngineSetup& s : engine_setups(settings)) {
    names.push_back(fmt::format("{}/{}/{}", s.n_ranks, s.n_threads, s.n_drafts));
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"1/1/0", "1/1/3", "1/2/0", "1/2/3", "2/1/0", "2/1/3"}));
}

TEST(Engine, JobsAreGreedyUncachedAndOneTokenLonger) {
  CpuBenchSettings settings;
  settings.golden = kGolden;
  const auto prompts = read_bench_prompts(settings);
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[0].ids.size(), 184u);
  EXPECT_EQ(prompts[1].ids.size(), 2462u);
  std::istringstream lines(engine_jobs(prompts, 64));
  std::vector<Json> jobs;
  for (std::string line; std::getline(lines, line);) jobs.push_back(Json::parse(line));
  ASSERT_EQ(jobs.size(), 3u);
  EXPECT_EQ(jobs[0]["name"], "warm-up");
  for (const Json& job : jobs) {
    EXPECT_EQ(job["prefix_cache"], false);
    EXPECT_EQ(job["ignore_eos"], true);
    EXPECT_EQ(job["temperature"], 0.0);
  }
  EXPECT_EQ(jobs[2]["max_tokens"], 65);
}

TEST(Engine, NamesAnAbsentPrompt) {
  CpuBenchSettings settings;
  settings.golden = kGolden;
  settings.prompts = {"no-such"};
  EXPECT_THROW(read_bench_prompts(settings), Error);
}

TEST(Engine, CountsRoundsFromTokensAndAcceptedDrafts) {
  const std::string line = R"({"timing":{"prefill_tokens":9,"prefill_s":0.5,"decode_tokens":20,)"
                           R"("decode_s":2},"mtp":{"rounds":7,"drafted":21,"accepted":12}})";
  const EngineTiming timing = parse_timing(line);
  EXPECT_EQ(timing.prefill_tokens, 9);
  EXPECT_EQ(timing.decode_s, 2);
  EXPECT_EQ(timing.n_rounds, 8);
  EXPECT_EQ(timing.n_drafts, 21);
}

TEST(Engine, RefusesLinesWithoutTiming) {
  EXPECT_THROW(parse_timing("{"), Error);
  EXPECT_THROW(parse_timing("[]"), Error);
  EXPECT_THROW(parse_timing(R"({"timing":{"prefill_tokens":"9"}})"), Error);
}

Series series(const std::string& section, const std::string& name, int64_t n_tokens, Roof roof) {
  Series key;
  key.section = section;
  key.name = name;
  key.n_tokens = n_tokens;
  key.unit = "tokens/s";
  key.roof = roof;
  return key;
}

TEST(Report, JsonHoldsMedianSpreadAndRuns) {
  Results results;
  for (const double value : {4.0, 2.0, 9.0}) {
    Series prefill = series("engine", "prefill k=0", 184, Roof::fma);
    prefill.floor = 0.25;
    results.add(prefill, value, value / 10);
    results.add(series("roof", "FMA avx2", 0, Roof::none), value);
    results.add(series("op", "linear", 4, Roof::read), value, 0.5);
  }
  BenchContext context;
  context.model = "a\"b";
  context.n_runs = 3;
  context.weights = {10, 20};
  context.machine.marks = {"throttled"};
  const Json json = Json::parse(results_json(context, results));
  EXPECT_EQ(json["format"], "lockstep-bench-cpu");
  EXPECT_EQ(json["machine"]["doubtful"], true);
  EXPECT_EQ(json["machine"]["marks"][0], "throttled");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["model"], "a\"b");
  EXPECT_EQ(json["weight_bytes"]["draft"], 20);
  ASSERT_EQ(json["engine"].size(), 1u);
  const Json& engine = json["engine"][0];
  EXPECT_EQ(engine["value"]["median"], 4);
  EXPECT_EQ(engine["value"]["low"], 2);
  EXPECT_EQ(engine["value"]["high"], 9);
  EXPECT_EQ(engine["value"]["runs"].size(), 3u);
  EXPECT_EQ(engine["share"]["median"], 0.4);
  EXPECT_EQ(engine["floor"], 0.25);
  EXPECT_EQ(engine["roof"], "fma");
  EXPECT_FALSE(json["roofs"][0].contains("share"));
  EXPECT_EQ(json["ops"][0]["tokens"], 4);
}

TEST(Report, SharesAboveTheRoofAreNotCredible) {
  Results results;
  results.add(series("engine", "prefill k=0", 184, Roof::fma), 5, 0.9);
  EXPECT_TRUE(results.series()[0].credible());
  results.add(series("engine", "prefill k=0", 184, Roof::fma), 5, 5.4);
  EXPECT_FALSE(results.series()[0].credible());
  const Json json = Json::parse(results_json({}, results));
  EXPECT_EQ(json["engine"][0]["credible"], false);
}

TEST(Report, KeepsSeriesApart) {
  Results results;
  Series key = series("engine", "decode k=0", 184, Roof::read);
  results.add(key, 1, 1);
  key.n_threads = 2;
  results.add(key, 2, 1);
  key.n_ranks = 2;
  results.add(key, 3, 1);
  key.n_tokens = 2462;
  results.add(key, 4, 1);
  EXPECT_EQ(results.series().size(), 4u);
}

TEST(Program, MeasuresTheEngineAndPrintsJson) {
  const ProcessResult result =
      bench({"cpu", "--golden", kGolden, "--runs", "2", "--sections", "engine", "--threads", "1",
             "--prompts", "chat-code", "--decode-tokens", "4", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.stderr_text;
  const Json json = Json::parse(result.stdout_text);
  // Prefill and decode with 0 and 3 drafts, with one rank and with two.
  ASSERT_EQ(json["engine"].size(), 8u);
  for (const Json& series : json["engine"]) {
    EXPECT_EQ(series["value"]["runs"].size(), 2u);
    EXPECT_EQ(series["tokens"], 36);
  }
}

TEST(Program, BadInputIsOneLine) {
  const auto refused = [](const std::vector<std::string>& arguments, int exit_code) {
    const ProcessResult result = bench(arguments);
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_EQ(result.stdout_text, "");
    return result.stderr_text;
  };
  const auto is_line = [](const std::string& text) {
    return text.starts_with("lockstep-bench: ") && std::count(text.begin(), text.end(), '\n') == 1;
  };
  EXPECT_TRUE(is_line(refused({"cpu", "--golden", "/absent"}, 1)));
  EXPECT_TRUE(is_line(refused({"cpu", "--golden", kGolden, "--codecs", "fp3"}, 1)));
  EXPECT_TRUE(is_line(refused({"cpu", "--golden", kGolden, "--cpu-target", "sse"}, 1)));
  EXPECT_TRUE(is_line(refused({"cpu", "--golden", kGolden, "--threads", "1", "--prompts",
                               "chat-code", "--sections", "engine", "--engine", "/bin/false"},
                              1)));
  refused({}, 2);
  refused({"cpu", "--runs", "0"}, 2);
  refused({"cpu", "--sections", "gpu"}, 2);
}

TEST(Program, WhatTimesCardsSaysWhatIsMissing) {
  if (n_cuda_devices() > 0) GTEST_SKIP() << "there is a card";
  for (const char* command : {"ops", "round", "transports"}) {
    const ProcessResult result = bench({command, "--json"});
    EXPECT_TRUE(result.exit_code == 74 || result.exit_code == 77) << result.exit_code;
    EXPECT_TRUE(result.stderr_text.find("no CUDA kernels") != std::string::npos ||
                result.stderr_text.find("the driver shows 0 cards") != std::string::npos)
        << result.stderr_text;
  }
}

}  // namespace
}  // namespace lockstep
