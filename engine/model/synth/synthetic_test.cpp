#include "engine/model/synth/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/model/inspect.h"
#include "engine/model/shard_plan.h"
#include "engine/model/synth/geometry.h"
#include "engine/model/tests/test_files.h"

namespace lockstep {
namespace {

SyntheticModel narrow(const std::string& format, uint64_t seed = 1) {
  return make_synthetic_model({"qwen3.8-27b-narrow", format, seed});
}

std::vector<std::byte> bytes_of(const Checkpoint& checkpoint, const std::string& name) {
  const TensorInfo* tensor = checkpoint.find(name);
  LOCKSTEP_CHECK(tensor != nullptr);
  std::vector<std::byte> bytes(static_cast<size_t>(tensor->n_bytes()));
  checkpoint.read(*tensor, 0, bytes);
  return bytes;
}

// The published sizes of the family's 27B model: parameters of text, MTP and vision, and tensors.
TEST(Synthetic, FullGeometryHasThePublishedSizes) {
  const SyntheticModel model = make_synthetic_model({"qwen3.8-27b", "bf16", 0});
  EXPECT_EQ(model.checkpoint->tensors().size(), 1199u);
  int64_t text = 0;
  int64_t mtp = 0;
  int64_t vision = 0;
  for (const auto& [name, tensor] : model.checkpoint->tensors()) {
    const std::string group = tensor_class(name);
    (group == "mtp" ? mtp : group == "vision" ? vision : text) += tensor->n_elements();
  }
  EXPECT_EQ(text, 26895998464);
  EXPECT_EQ(mtp, 424699392);
  EXPECT_EQ(vision, 460730096);
  EXPECT_EQ(model.checkpoint->n_bytes(), 55562855904);
}

// Local shapes of rank 0 and 1 at TP=2 as the tensor-parallel layout of the family has them.
TEST(Synthetic, FullGeometrySplitsAsTheLayoutSays) {
  const SyntheticModel model = make_synthetic_model({"qwen3.8-27b", "bf16", 0});
  std::map<std::string, const ShardRow*> rows;
  const ShardPlan plan = make_shard_plan(model.config, *model.checkpoint, 2);
  for (const ShardRow& row : plan) rows[row.name] = &row;
  const std::string layers = "model.language_model.layers.";
  const std::pair<std::string, std::vector<int64_t>> shapes[] = {
      {layers + "3.self_attn.q_proj.weight", {6144, 5120}},
      {layers + "3.self_attn.k_proj.weight", {512, 5120}},
      {layers + "3.self_attn.o_proj.weight", {5120, 3072}},
      {layers + "3.self_attn.q_norm.weight", {256}},
      {layers + "0.linear_attn.in_proj_qkv.weight", {5120, 5120}},
      {layers + "0.linear_attn.conv1d.weight", {5120, 1, 4}},
      {layers + "0.linear_attn.in_proj_z.weight", {3072, 5120}},
      {layers + "0.linear_attn.in_proj_a.weight", {24, 5120}},
      {layers + "0.linear_attn.A_log", {24}},
      {layers + "0.linear_attn.norm.weight", {128}},
      {layers + "0.linear_attn.out_proj.weight", {5120, 3072}},
      {layers + "63.mlp.gate_proj.weight", {8704, 5120}},
      {layers + "63.mlp.down_proj.weight", {5120, 8704}},
      {"lm_head.weight", {124160, 5120}},
      {"mtp.fc.weight", {5120, 10240}},
      {"mtp.layers.0.self_attn.q_proj.weight", {6144, 5120}},
      {"model.language_model.embed_tokens.weight", {248320, 5120}},
      {"model.visual.blocks.26.attn.qkv.weight", {3456, 1152}},
  };
  for (const auto& [name, shape] : shapes) {
    for (const int rank : {0, 1}) EXPECT_EQ(rows.at(name)->local_shape(rank), shape) << name;
  }
  const std::vector<IndexRange> rank1 = {{1024, 2048}, {3072, 4096}, {7168, 10240}};
  EXPECT_EQ(rows.at(layers + "0.linear_attn.in_proj_qkv.weight")->ranges[1], rank1);

  // A rank's bytes: half of what is split, all of what is not.
  int64_t split = 0;
  int64_t whole = 0;
  int64_t local[2] = {0, 0};
  for (const ShardRow& row : plan) {
    (row.axis < 0 ? whole : split) += row.source->n_bytes();
    for (const int rank : {0, 1}) local[rank] += row.local_bytes(rank);
  }
  EXPECT_EQ(local[0], whole + split / 2);
  EXPECT_EQ(local[1], local[0]);
  // Replicated: embedding, the norms, mtp.fc, vision.
  const int64_t norms =
      64 * 2 * 5120 + 5120 + 16 * 2 * 256 + 48 * 128 + 3 * 5120 + 2 * 5120 + 2 * 256;
  EXPECT_EQ(whole, 2 * (int64_t{248320} * 5120 + norms + int64_t{5120} * 10240 + 460730096));
}

TEST(Synthetic, FullGeometryOfTheOfficialFp8HasItsScales) {
  const SyntheticModel model = make_synthetic_model({"qwen3.8-27b", "fp8-block", 0});
  EXPECT_EQ(model.checkpoint->tensors().size(), 1606u);
  const std::string layers = "model.language_model.layers.";
  const std::pair<std::string, std::vector<int64_t>> shapes[] = {
      {layers + "3.self_attn.q_proj", {96, 40}},
      {layers + "3.self_attn.k_proj", {8, 40}},
      {layers + "3.self_attn.o_proj", {40, 48}},
      {layers + "0.linear_attn.in_proj_qkv", {80, 40}},
      {layers + "0.linear_attn.in_proj_z", {48, 40}},
      {layers + "0.mlp.gate_proj", {136, 40}},
      {layers + "0.mlp.down_proj", {40, 136}},
      {"mtp.layers.0.self_attn.v_proj", {8, 40}}};
  for (const auto& [base, shape] : shapes) {
    EXPECT_EQ(model.checkpoint->find(base + ".weight_scale_inv")->shape, shape) << base;
  }
  int64_t n_fp8 = 0;
  for (const auto& [name, tensor] : model.checkpoint->tensors())
    n_fp8 += tensor->dtype == DType::F8_E4M3;
  EXPECT_EQ(n_fp8, 407);
  EXPECT_EQ(make_shard_plan(model.config, *model.checkpoint, 2).size(), 1606u);
  int64_t n_bytes = model.checkpoint->n_bytes();
  EXPECT_NEAR(static_cast<double>(n_bytes), 30866866928.0,
              1e6);  // the published files, headers included
}

TEST(Synthetic, NarrowGeometryHasEveryTensorOfTheFullOne) {
  const SyntheticModel full = make_synthetic_model({"qwen3.8-27b", "bf16", 0});
  const SyntheticModel small = narrow("bf16");
  std::vector<std::string> full_names;
  std::vector<std::string> small_names;
  for (const auto& [name, tensor] : full.checkpoint->tensors()) full_names.push_back(name);
  for (const auto& [name, tensor] : small.checkpoint->tensors()) small_names.push_back(name);
  EXPECT_EQ(small_names, full_names);
}

TEST(Synthetic, GoldenGeometryFromItsFile) {
  const SyntheticModel model =
      make_synthetic_model({LOCKSTEP_GOLDEN_DIR "/tiny-qwen3_5/config.json", "nvfp4-fp8", 3});
  const Checkpoint golden(std::filesystem::path(LOCKSTEP_GOLDEN_DIR "/tiny-qwen3_5"));
  ASSERT_EQ(model.checkpoint->tensors().size(), golden.tensors().size());
  for (const auto& [name, tensor] : golden.tensors()) {
    ASSERT_NE(model.checkpoint->find(name), nullptr) << name;
    EXPECT_EQ(model.checkpoint->find(name)->shape, tensor->shape) << name;
  }
}

TEST(Synthetic, AnyRangeIsThatPartOfTheWhole) {
  PhiloxStream random(5);
  for (const char* format : {"bf16", "nvfp4-fp8", "int4-g64", "gptq", "fp8-block"}) {
    const SyntheticModel model = narrow(format);
    size_t looked_at = 0;
    for (const auto& [name, tensor] : model.checkpoint->tensors()) {
      if (name.find("layers.3.") == std::string::npos) continue;
      const std::vector<std::byte> whole = bytes_of(*model.checkpoint, name);
      const auto begin = random.next_below(static_cast<uint32_t>(whole.size()));
      const auto n = random.next_below(static_cast<uint32_t>(whole.size() - begin)) + 1;
      std::vector<std::byte> part(n);
      model.checkpoint->read(*tensor, begin, part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << name;
      ++looked_at;
    }
    EXPECT_GT(looked_at, 10u);
  }
}

TEST(Synthetic, SeedsAndNamesGiveOtherNumbers) {
  const std::string up = "model.language_model.layers.0.mlp.up_proj.weight";
  const std::string gate = "model.language_model.layers.0.mlp.gate_proj.weight";
  const SyntheticModel one = narrow("nvfp4-fp8", 1);
  const SyntheticModel two = narrow("nvfp4-fp8", 2);
  EXPECT_EQ(bytes_of(*one.checkpoint, up), bytes_of(*narrow("nvfp4-fp8", 1).checkpoint, up));
  EXPECT_NE(bytes_of(*one.checkpoint, up), bytes_of(*two.checkpoint, up));
  EXPECT_NE(bytes_of(*one.checkpoint, up), bytes_of(*one.checkpoint, gate));
  EXPECT_NE(one.digest, two.digest);
}

// Every format opens, holds no NaN, and its matrices have the deviation that keeps activations in
// range.
TEST(Synthetic, EveryFormatOpensWithTheIntendedScale) {
  for (const ConvertTarget& target : convert_targets()) {
    const SyntheticModel model = narrow(std::string(target.name));
    for (const char* name : {"0.mlp.up_proj", "0.linear_attn.in_proj_qkv", "3.self_attn.q_proj"}) {
      const StoredMatrix stored =
          model.checkpoint->matrix("model.language_model.layers." + std::string(name));
      std::vector<float> row(static_cast<size_t>(stored.view.n_cols));
      double sum = 0.0;
      for (int64_t n = 0; n < stored.view.n_rows; ++n) {
        decode_row(stored.view, n, row.data());
        for (const float value : row) sum += static_cast<double>(value) * value;
      }
      const double count = static_cast<double>(stored.view.n_rows * stored.view.n_cols);
      // Two block scales are all that a small matrix has; each lies within a quarter of its aim.
      const double tolerance = stored.format == "fp8-block" ? 0.27 : 0.05;
      EXPECT_NEAR(std::sqrt(sum / count) * std::sqrt(128.0), 1.0, tolerance)
          << target.name << " " << name;
    }
  }
}

TEST(Synthetic, RankPartsAreThePlansPartsOfTheWhole) {
  for (const char* format : {"nvfp4-fp8", "fp8-block", "int4-g64"}) {
    const SyntheticModel model = narrow(format);
    const ShardPlan plan = make_shard_plan(model.config, *model.checkpoint, 2);
    for (const int rank : {0, 1}) {
      const auto part = synthetic_rank_part(model, 2, rank);
      for (const ShardRow& row : plan) {
        if (row.name.find("layers.3.") == std::string::npos) continue;
        EXPECT_EQ(part->find(row.name)->shape, row.local_shape(rank)) << row.name;
        EXPECT_EQ(static_cast<int64_t>(bytes_of(*part, row.name).size()), row.local_bytes(rank));
      }
    }
  }
}

TEST(Synthetic, SpecsAreCheckedByName) {
  EXPECT_TRUE(is_synthetic_spec("synth:qwen3.8-27b"));
  EXPECT_FALSE(is_synthetic_spec("models/synth"));
  const SyntheticSpec spec = parse_synthetic_spec("synth:qwen3.8-27b:bf16:18446744073709551615");
  EXPECT_EQ(spec.format, "bf16");
  EXPECT_EQ(spec.seed, ~uint64_t{0});
  expect_error([] { parse_synthetic_spec("synth:"); }, {"synth:"});
  expect_error([] { parse_synthetic_spec("synth:a:b:c:d"); }, {"synth:a:b:c:d"});
  expect_error([] { parse_synthetic_spec("synth:a:b:-1"); }, {"seed '-1'"});
  expect_error([] { make_synthetic_model({"no-such", "bf16", 0}); }, {"no-such"});
  expect_error([] { make_synthetic_model({"qwen3.8-27b", "int3", 0}); }, {"int3"});
}

}  // namespace
}  // namespace lockstep
