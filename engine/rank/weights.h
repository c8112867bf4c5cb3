// One rank's weights as typed fields. Shapes use totals divided by the number of ranks ("local").
// Column-parallel matrices are lists of row pieces (several when a cut takes several ranges);
// row-parallel matrices are their half-K parts: one on a TP=2 rank, both on a TP=1 rank, so that
// TP=1 and TP=2 form the same partial sums (I3).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/model/checkpoint.h"
#include "engine/model/config.h"
#include "engine/model/shard_plan.h"
#include "engine/model/weight_matrix.h"
#include "engine/rank/vision_weights.h"

namespace lockstep {

using MatrixPieces = std::vector<WeightMatrix>;  // stacked along rows
using MatrixHalves =
    std::vector<WeightMatrix>;  // side by side along columns, in the order of ranks

// This rank's share of the dimensions.
struct RankDims {
  int n_ranks = 1;
  int rank = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int intermediate_size = 0;
  int vocab_rows = 0;
  GdnConfig gdn;
};

RankDims rank_dims(const ModelConfig& config, int n_ranks, int rank);

struct AttentionWeights {
  MatrixPieces q_proj;        // [local heads * 2 * head_dim, hidden], per head query then gate
  MatrixPieces k_proj;        // [local kv heads * head_dim, hidden]
  MatrixPieces v_proj;        // [local kv heads * head_dim, hidden]
  MatrixHalves o_proj;        // [hidden, local heads * head_dim]
  std::vector<float> q_norm;  // [head_dim]
  std::vector<float> k_norm;  // [head_dim]
};

struct GdnWeights {
  MatrixPieces in_proj_qkv;    // [local conv channels, hidden], sections Q | K | V
  MatrixPieces in_proj_z;      // [local v width, hidden]
  MatrixPieces in_proj_a;      // [local v heads, hidden]
  MatrixPieces in_proj_b;      // [local v heads, hidden]
  MatrixHalves out_proj;       // [hidden, local v width]
  std::vector<float> conv;     // [local conv channels, 4]
  std::vector<float> a_log;    // [local v heads]
  std::vector<float> dt_bias;  // [local v heads]
  std::vector<float> norm;     // [v head dim]
};

struct MlpWeights {
  MatrixPieces gate_proj;  // [local intermediate, hidden]
  MatrixPieces up_proj;    // [local intermediate, hidden]
  MatrixHalves down_proj;  // [hidden, local intermediate]
};

struct LayerWeights {
  LayerKind kind = LayerKind::full_attention;
  std::vector<float> input_norm;           // [hidden]
  std::vector<float> post_attention_norm;  // [hidden]
  AttentionWeights attention;              // full_attention only
  GdnWeights gdn;                          // gated_delta_net only
  MlpWeights mlp;
};

struct MtpWeights {
  std::vector<float> embedding_norm;  // [hidden], pre_fc_norm_embedding
  std::vector<float> hidden_norm;     // [hidden], pre_fc_norm_hidden
  std::vector<float> norm;            // [hidden]
  WeightMatrix fc;                    // [hidden, 2 * hidden], embedding first
  LayerWeights layer;
};

struct RankWeights {
  RankDims dims;
  WeightMatrix embedding;         // [vocab, hidden]
  std::vector<float> final_norm;  // [hidden]
  MatrixPieces lm_head;           // [local vocab rows, hidden]
  std::vector<LayerWeights> layers;
  std::unique_ptr<MtpWeights> mtp;        // null when the checkpoint has none
  std::unique_ptr<VisionWeights> vision;  // null when the checkpoint has none
  std::vector<std::shared_ptr<const void>> keep_alive;
};

// Where a rank's tensors come from: a whole checkpoint (sliced here) or its shard (already local).
struct WeightSource {
  const Checkpoint* checkpoint = nullptr;
  bool sharded = false;
};

// Throws Error that names a missing or misshapen tensor. The source must outlive the weights.
RankWeights load_rank_weights(const ModelConfig& config, const WeightSource& source, int n_ranks,
                              int rank);

}  // namespace lockstep
