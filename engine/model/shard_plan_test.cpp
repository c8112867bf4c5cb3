// The plan is checked element by element: where each one lands, and that putting the ranks' parts
// together again gives the source bit for bit.
#include "engine/model/shard_plan.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/model/shard_spans.h"
#include "engine/model/tests/test_files.h"

namespace lockstep {
namespace {

enum class Cut { none, rows, columns, sections };

// The rules written out once more, by the name's parts.
Cut expected_cut(const std::string& name, const TensorInfo& tensor) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (name.rfind("model.visual.", 0) == 0 || tensor.n_elements() == 1) return Cut::none;
  if (has(".o_proj.") || has(".out_proj.") || has(".down_proj.")) return Cut::columns;
  if (has(".in_proj_qkv.") || has(".conv1d.")) return Cut::sections;
  for (const char* part :
       {".q_proj.", ".k_proj.", ".v_proj.", ".in_proj_z.", ".in_proj_a.", ".in_proj_b.", ".A_log",
        ".dt_bias", ".gate_proj.", ".up_proj.", "lm_head."}) {
    if (has(part)) return Cut::rows;
  }
  return Cut::none;
}

// Bit r is set when rank r should hold byte `byte` of the tensor.
int expected_holders(const ModelConfig& config, Cut cut, const TensorInfo& tensor, int64_t byte,
                     int n_ranks) {
  if (cut == Cut::none) return (1 << n_ranks) - 1;
  const int64_t element = byte / dtype_bytes(tensor.dtype);
  if (cut == Cut::columns) return 1 << (element % tensor.shape[1] * n_ranks / tensor.shape[1]);
  const int64_t row = element / (tensor.n_elements() / tensor.shape[0]);
  if (cut == Cut::rows) return 1 << (row * n_ranks / tensor.shape[0]);
  const int64_t key_width = config.gdn.k_width();
  if (row < 2 * key_width) return 1 << (row % key_width * n_ranks / key_width);
  return 1 << ((row - 2 * key_width) * n_ranks / config.gdn.v_width());
}

void check_plan(const ModelConfig& config, const Checkpoint& checkpoint, int n_ranks) {
  const ShardPlan plan = make_shard_plan(config, checkpoint, n_ranks);
  ASSERT_EQ(plan.size(), checkpoint.tensors().size());
  for (const ShardRow& row : plan) {
    const auto n_bytes = static_cast<size_t>(row.source->n_bytes());
    std::vector<std::byte> source(n_bytes);
    checkpoint.read(*row.source, 0, source);
    std::vector<std::byte> joined(n_bytes);
    std::vector<int> holders(n_bytes);  // bit r: rank r holds the byte
    for (int rank = 0; rank < n_ranks; ++rank) {
      std::vector<std::byte> local(static_cast<size_t>(row.local_bytes(rank)));
      read_local(checkpoint, row, rank, 0, local);
      scatter_local(row, rank, local, joined);
      for_each_span(row, rank, 0, row.local_bytes(rank), [&](int64_t offset, int64_t n) {
        for (int64_t i = offset; i < offset + n; ++i) holders[static_cast<size_t>(i)] |= 1 << rank;
      });
    }
    ASSERT_EQ(joined, source) << row.name;
    const Cut cut = expected_cut(row.name, *row.source);
    int64_t n_wrong = 0;
    for (size_t i = 0; i < n_bytes; ++i) {
      n_wrong += holders[i] !=
                 expected_holders(config, cut, *row.source, static_cast<int64_t>(i), n_ranks);
    }
    ASSERT_EQ(n_wrong, 0) << row.name << ": bytes on other ranks than the rules say";
  }
}

// Bytes that depend on name and position, so that a byte from a wrong place is noticed.
class PatternGenerator : public TensorGenerator {
 public:
  void fill(const TensorInfo& tensor, int64_t offset, std::span<std::byte> out) const override {
    const auto key = static_cast<uint32_t>(std::hash<std::string>()(tensor.name));
    for (size_t i = 0; i < out.size(); ++i) {
      const auto at = static_cast<uint32_t>(offset) + static_cast<uint32_t>(i);
      out[i] = static_cast<std::byte>(philox4x32({at, 0, 0, 0}, {key, 7})[0]);
    }
  }
};

struct SmallModel {
  ModelConfig config;
  std::unique_ptr<Checkpoint> checkpoint;
};

// A random geometry that n_ranks divides, with every kind of tensor once, plain or NVFP4.
SmallModel random_model(PhiloxStream& random, int n_ranks) {
  SmallModel model;
  ModelConfig& config = model.config;
  const auto times = [&](int low, int count) {
    return n_ranks * (low + static_cast<int>(random.next_below(static_cast<uint32_t>(count))));
  };
  config.n_kv_heads = times(1, 2);
  config.n_heads = config.n_kv_heads * (1 + static_cast<int>(random.next_below(3)));
  config.head_dim = 16;
  config.hidden_size = 16 * (1 + static_cast<int>(random.next_below(3)));
  config.intermediate_size = 16 * times(1, 3);
  config.vocab_size = times(3, 20);
  config.gdn.n_k_heads = times(1, 2);
  config.gdn.n_v_heads = config.gdn.n_k_heads * (1 + static_cast<int>(random.next_below(3)));
  config.gdn.k_head_dim = 16;
  config.gdn.v_head_dim = 16;
  config.layers = {LayerKind::gated_delta_net, LayerKind::full_attention};
  std::vector<TensorInfo> index;
  const auto add = [&](const std::string& name, DType dtype, std::vector<int64_t> shape) {
    index.push_back({name, dtype, std::move(shape), {}});
  };
  const auto matrix = [&](const std::string& base, int64_t n_rows, int64_t n_cols) {
    if (random.next_below(2) == 0) return add(base + ".weight", DType::BF16, {n_rows, n_cols});
    add(base + ".weight", DType::U8, {n_rows, n_cols / 2});
    add(base + ".weight_scale", DType::F8_E4M3, {n_rows, n_cols / 16});
    add(base + ".weight_scale_2", DType::F32, {});
  };
  const int64_t hidden = config.hidden_size;
  const int64_t q = int64_t{config.n_heads} * config.head_dim;
  const int64_t kv = int64_t{config.n_kv_heads} * config.head_dim;
  const std::string layers = "model.language_model.layers.";
  const std::string gdn = layers + "0.linear_attn.";
  matrix(gdn + "in_proj_qkv", config.gdn.conv_channels(), hidden);
  matrix(gdn + "in_proj_z", config.gdn.v_width(), hidden);
  add(gdn + "in_proj_a.weight", DType::BF16, {config.gdn.n_v_heads, hidden});
  add(gdn + "in_proj_b.weight", DType::BF16, {config.gdn.n_v_heads, hidden});
  add(gdn + "conv1d.weight", DType::BF16, {config.gdn.conv_channels(), 1, 4});
  add(gdn + "A_log", DType::F32, {config.gdn.n_v_heads});
  add(gdn + "dt_bias", DType::BF16, {config.gdn.n_v_heads});
  add(gdn + "norm.weight", DType::F32, {config.gdn.v_head_dim});
  matrix(gdn + "out_proj", hidden, config.gdn.v_width());
  for (const std::string& layer : {layers + "1.", std::string("mtp.layers.0.")}) {
    matrix(layer + "self_attn.q_proj", 2 * q, hidden);
    matrix(layer + "self_attn.k_proj", kv, hidden);
    matrix(layer + "self_attn.v_proj", kv, hidden);
    matrix(layer + "self_attn.o_proj", hidden, q);
    matrix(layer + "mlp.gate_proj", config.intermediate_size, hidden);
    matrix(layer + "mlp.up_proj", config.intermediate_size, hidden);
    matrix(layer + "mlp.down_proj", hidden, config.intermediate_size);
    add(layer + "self_attn.q_norm.weight", DType::BF16, {config.head_dim});
    add(layer + "input_layernorm.weight", DType::BF16, {hidden});
  }
  add("mtp.fc.weight", DType::BF16, {hidden, 2 * hidden});
  add("lm_head.weight", DType::BF16, {config.vocab_size, hidden});
  add("model.language_model.embed_tokens.weight", DType::BF16, {config.vocab_size, hidden});
  add("model.visual.blocks.0.attn.proj.weight", DType::BF16, {16, 16});
  model.checkpoint =
      std::make_unique<Checkpoint>("small", std::move(index), std::make_shared<PatternGenerator>());
  return model;
}

TEST(ShardPlan, GoldenElementsLandWhereTheRulesSay) {
  const std::filesystem::path dir(LOCKSTEP_GOLDEN_DIR "/tiny-qwen3_5");
  const ModelConfig config = load_model_config(dir);
  const Checkpoint checkpoint(dir);
  for (const int n_ranks : {1, 2}) check_plan(config, checkpoint, n_ranks);
}

TEST(ShardPlan, RandomGeometriesLandWhereTheRulesSay) {
  PhiloxStream random(11);
  for (int round = 0; round < 12; ++round) {
    const int n_ranks = 1 + static_cast<int>(random.next_below(4));
    const SmallModel model = random_model(random, n_ranks);
    check_plan(model.config, *model.checkpoint, n_ranks);
    if (HasFatalFailure()) return;
  }
}

TEST(ShardPlan, AnyByteRangeOfAPartCanBeReadByItself) {
  PhiloxStream random(12);
  const SmallModel model = random_model(random, 2);
  for (const ShardRow& row : make_shard_plan(model.config, *model.checkpoint, 2)) {
    std::vector<std::byte> whole(static_cast<size_t>(row.local_bytes(1)));
    read_local(*model.checkpoint, row, 1, 0, whole);
    for (int i = 0; i < 8; ++i) {
      const auto begin = random.next_below(static_cast<uint32_t>(whole.size()));
      const auto n = random.next_below(static_cast<uint32_t>(whole.size() - begin + 1));
      std::vector<std::byte> part(n);
      read_local(*model.checkpoint, row, 1, begin, part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << row.name;
    }
  }
}

TEST(ShardPlan, RefusesWhatDoesNotDivideByName) {
  PhiloxStream random(13);
  SmallModel model = random_model(random, 2);
  model.config.n_kv_heads = 3;
  expect_error([&] { make_shard_plan(model.config, *model.checkpoint, 2); },
               {"num_key_value_heads", "3"});
}

TEST(ShardPlan, RefusesCutsThroughAScaleGroup) {
  PhiloxStream random(14);
  ModelConfig config = random_model(random, 2).config;
  config.intermediate_size = 48;  // half of it is one group and a half
  std::vector<TensorInfo> index = {
      {"model.language_model.layers.0.mlp.down_proj.weight", DType::U8, {16, 24}, {}},
      {"model.language_model.layers.0.mlp.down_proj.weight_scale", DType::F8_E4M3, {16, 3}, {}},
      {"model.language_model.layers.0.mlp.down_proj.weight_scale_2", DType::F32, {}, {}}};
  const Checkpoint checkpoint("small", index, std::make_shared<PatternGenerator>());
  expect_error([&] { make_shard_plan(config, checkpoint, 2); },
               {"down_proj.weight_scale", "multiples of 16"});
}

TEST(ShardPlan, RefusesTensorsOfAnotherGeometry) {
  PhiloxStream random(15);
  ModelConfig config = random_model(random, 2).config;
  const std::string name = "model.language_model.layers.0.mlp.up_proj.weight";
  for (const int64_t n_rows : {config.intermediate_size - 2, config.intermediate_size + 2}) {
    const Checkpoint checkpoint("small", {{name, DType::BF16, {n_rows, 16}, {}}},
                                std::make_shared<PatternGenerator>());
    expect_error([&] { make_shard_plan(config, checkpoint, 2); }, {name});
  }
}

}  // namespace
}  // namespace lockstep
