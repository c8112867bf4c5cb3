#include "engine/rank/weights.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/model/weight_slices.h"
#include "engine/rank/planted_faults.h"

namespace lockstep {
namespace {

constexpr int kExchangeParts = 2;  // half-K partial sums of a row-parallel product (I3)

class Loader {
 public:
  Loader(const ModelConfig& config, const WeightSource& source, RankWeights& weights)
      : config_(config), source_(source), weights_(weights), dims_(weights.dims) {}

  void load() {
    const int64_t hidden = config_.hidden_size;
    const std::string text = "model.language_model.";
    weights_.embedding = whole(text + "embed_tokens", config_.vocab_size, hidden);
    weights_.final_norm = vector(text + "norm.weight", hidden);
    if (config_.tie_word_embeddings) {
      const int64_t begin = int64_t{dims_.rank} * dims_.vocab_rows;
      weights_.lm_head = {slice_rows(weights_.embedding, begin, begin + dims_.vocab_rows)};
    } else {
      weights_.lm_head = pieces("lm_head", config_.vocab_size, hidden);
    }
    for (int i = 0; i < config_.n_layers(); ++i) {
      weights_.layers.push_back(
          layer(text + "layers." + std::to_string(i), config_.layers[static_cast<size_t>(i)]));
    }
    if (config_.n_mtp_layers > 0 && source_.checkpoint->find("mtp.norm.weight") != nullptr) {
      weights_.mtp = std::make_unique<MtpWeights>(mtp());
    }
    weights_.vision = load_vision_weights(config_, *source_.checkpoint);
  }

 private:
  MtpWeights mtp() {
    const int64_t hidden = config_.hidden_size;
    MtpWeights mtp;
    mtp.embedding_norm = vector("mtp.pre_fc_norm_embedding.weight", hidden);
    mtp.hidden_norm = vector("mtp.pre_fc_norm_hidden.weight", hidden);
    mtp.norm = vector("mtp.norm.weight", hidden);
    mtp.fc = whole("mtp.fc", hidden, 2 * hidden);
    mtp.layer = layer("mtp.layers.0", LayerKind::full_attention);
    return mtp;
  }

  LayerWeights layer(const std::string& prefix, LayerKind kind) {
    LayerWeights layer;
    layer.kind = kind;
    layer.input_norm = vector(prefix + ".input_layernorm.weight", config_.hidden_size);
    layer.post_attention_norm =
        vector(prefix + ".post_attention_layernorm.weight", config_.hidden_size);
    if (kind == LayerKind::full_attention) {
      layer.attention = attention(prefix + ".self_attn");
    } else {
      layer.gdn = gdn(prefix + ".linear_attn");
    }
    layer.mlp = mlp(prefix + ".mlp");
    return layer;
  }

  AttentionWeights attention(const std::string& prefix) {
    const int64_t hidden = config_.hidden_size;
    const int64_t q_width = int64_t{config_.n_heads} * config_.head_dim;
    const int64_t kv_width = int64_t{config_.n_kv_heads} * config_.head_dim;
    AttentionWeights attention;
    attention.q_proj = pieces(prefix + ".q_proj", 2 * q_width, hidden);
    attention.k_proj = pieces(prefix + ".k_proj", kv_width, hidden);
    attention.v_proj = pieces(prefix + ".v_proj", kv_width, hidden);
    attention.o_proj = halves(prefix + ".o_proj", hidden, q_width);
    attention.q_norm = vector(prefix + ".q_norm.weight", config_.head_dim);
    attention.k_norm = vector(prefix + ".k_norm.weight", config_.head_dim);
    return attention;
  }

  GdnWeights gdn(const std::string& prefix) {
    const int64_t hidden = config_.hidden_size;
    const GdnConfig& total = config_.gdn;
    GdnWeights gdn;
    gdn.in_proj_qkv = pieces(prefix + ".in_proj_qkv", total.conv_channels(), hidden);
    gdn.in_proj_z = pieces(prefix + ".in_proj_z", total.v_width(), hidden);
    gdn.in_proj_a = pieces(prefix + ".in_proj_a", total.n_v_heads, hidden);
    gdn.in_proj_b = pieces(prefix + ".in_proj_b", total.n_v_heads, hidden);
    gdn.out_proj = halves(prefix + ".out_proj", hidden, total.v_width());
    gdn.conv = local_rows(prefix + ".conv1d.weight", {total.conv_channels(), 1, kConvWidth});
    gdn.a_log = local_rows(prefix + ".A_log", {total.n_v_heads});
    gdn.dt_bias = local_rows(prefix + ".dt_bias", {total.n_v_heads});
    gdn.norm = vector(prefix + ".norm.weight", total.v_head_dim);
    return gdn;
  }

  MlpWeights mlp(const std::string& prefix) {
    const int64_t hidden = config_.hidden_size;
    MlpWeights mlp;
    mlp.gate_proj = pieces(prefix + ".gate_proj", config_.intermediate_size, hidden);
    mlp.up_proj = pieces(prefix + ".up_proj", config_.intermediate_size, hidden);
    mlp.down_proj = halves(prefix + ".down_proj", hidden, config_.intermediate_size);
    return mlp;
  }

  WeightMatrix keep(StoredMatrix stored) {
    for (auto& owner : stored.keep_alive) weights_.keep_alive.push_back(std::move(owner));
    return stored.view;
  }

  WeightMatrix whole(const std::string& base, int64_t n_rows, int64_t n_cols) {
    return keep(source_.checkpoint->matrix(base, n_rows, n_cols));
  }

  std::vector<float> vector(const std::string& name, int64_t width) const {
    return source_.checkpoint->floats(name, {width});
  }

  const std::vector<IndexRange>& my_ranges(const LogicalSplit& split) const {
    return split.ranges[static_cast<size_t>(dims_.rank)];
  }

  static void check_cut(const std::string& base, const char* what, int64_t at, int64_t granule) {
    if (at % granule == 0) return;
    fail("matrix {}: the cut at {} {} does not fall on multiples of {}, which share a scale", base,
         what, at, granule);
  }

  // This rank's rows of a column-parallel matrix [n_rows, n_cols].
  MatrixPieces pieces(const std::string& base, int64_t n_rows, int64_t n_cols) {
    const LogicalSplit split = logical_split(config_, base, dims_.n_ranks);
    LOCKSTEP_CHECK(split.kind == SplitKind::rows);
    int64_t local = 0;
    for (const IndexRange& range : my_ranges(split)) local += range.size();
    if (source_.sharded) return {whole(base, local, n_cols)};
    const WeightMatrix matrix = whole(base, n_rows, n_cols);
    if (dims_.n_ranks == 1) return {matrix};
    MatrixPieces result;
    for (const IndexRange& range : my_ranges(split)) {
      check_cut(base, "row", range.begin, row_cut_granule(matrix));
      result.push_back(slice_rows(matrix, range.begin, range.end));
    }
    return result;
  }

  // This rank's half-K parts of a row-parallel matrix [n_rows, n_cols].
  MatrixHalves halves(const std::string& base, int64_t n_rows, int64_t n_cols) {
    const int64_t half = n_cols / kExchangeParts;
    if (half % codec_column_granule(Codec::nvfp4) != 0) {
      fail("matrix {}: half of its {} columns is not a multiple of 16", base, n_cols);
    }
    if (source_.sharded && dims_.n_ranks > 1) return {whole(base, n_rows, half)};
    const WeightMatrix matrix = whole(base, n_rows, n_cols);
    check_cut(base, "column", half, column_cut_granule(matrix));
    if (dims_.n_ranks > 1) {
      return {slice_columns(matrix, dims_.rank * half, (dims_.rank + 1) * half)};
    }
    return {slice_columns(matrix, 0, half), slice_columns(matrix, half, n_cols)};
  }

  // This rank's rows of a small float tensor, rows concatenated.
  std::vector<float> local_rows(const std::string& name, std::vector<int64_t> shape) const {
    const LogicalSplit split = logical_split(config_, split_tensor_name(name).base, dims_.n_ranks);
    LOCKSTEP_CHECK(split.kind == SplitKind::rows);
    int64_t local = 0;
    for (const IndexRange& range : my_ranges(split)) local += range.size();
    const int64_t width = TensorInfo{name, DType::F32, shape, {}}.n_elements() / shape[0];
    if (source_.sharded) shape[0] = local;
    const std::vector<float> all = source_.checkpoint->floats(name, shape);
    if (source_.sharded) return all;
    std::vector<float> result;
    for (const IndexRange& range : my_ranges(split)) {
      result.insert(result.end(), all.begin() + range.begin * width,
                    all.begin() + range.end * width);
    }
    return result;
  }

  const ModelConfig& config_;
  const WeightSource& source_;
  RankWeights& weights_;
  const RankDims& dims_;
};

}  // namespace

RankDims rank_dims(const ModelConfig& config, int n_ranks, int rank) {
  check_divisible(config, n_ranks);
  RankDims dims;
  dims.n_ranks = n_ranks;
  dims.rank = rank;
  dims.n_heads = config.n_heads / n_ranks;
  dims.n_kv_heads = config.n_kv_heads / n_ranks;
  dims.intermediate_size = config.intermediate_size / n_ranks;
  dims.vocab_rows = config.vocab_size / n_ranks;
  dims.gdn = config.gdn;
  dims.gdn.n_k_heads /= n_ranks;
  dims.gdn.n_v_heads /= n_ranks;
  return dims;
}

RankWeights load_rank_weights(const ModelConfig& config, const WeightSource& source, int n_ranks,
                              int rank) {
  RankWeights weights;
  weights.dims = rank_dims(config, n_ranks, rank);
  Loader(config, source, weights).load();
  plant_weight_faults(weights);
  return weights;
}

}  // namespace lockstep
