// A rank's weights on a card: every matrix packed for its kernel once, at load.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/device/arena.h"
#include "engine/ops/linear/cuda/linear_plan_cuda.h"
#include "engine/rank/weights.h"

namespace lockstep {

struct CardMatrix {
  LinearCudaPlan plan;
  const std::byte* bytes = nullptr;
};
using CardPieces = std::vector<CardMatrix>;  // as MatrixPieces and MatrixHalves

struct CardLayer {
  LayerKind kind = LayerKind::full_attention;
  const float* input_norm = nullptr;
  const float* post_attention_norm = nullptr;
  CardPieces q_proj, k_proj, v_proj, o_proj;  // full_attention
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  CardPieces in_proj_qkv, in_proj_z, in_proj_a, in_proj_b, out_proj;  // gated_delta_net
  const float* conv = nullptr;
  const float* a_log = nullptr;
  const float* dt_bias = nullptr;
  const float* norm = nullptr;
  CardPieces gate_proj, up_proj, down_proj;
  bool gates_in_pairs = false;  // pieces of gate_proj and up_proj are of one codec and shape
};

struct CardMtp {
  const float* embedding_norm = nullptr;
  const float* hidden_norm = nullptr;
  const float* norm = nullptr;
  CardPieces fc;
  CardLayer layer;
};

struct CardWeights {
  WeightMatrix embedding;  // codes lie on the card
  const float* final_norm = nullptr;
  CardPieces lm_head;
  std::vector<CardLayer> layers;
  CardMtp mtp;  // empty when the checkpoint has none
};

// Books blocks of an arena first, then fills them and points the fields of the weights at them. The
// fields must stay where they are until upload() has returned.
class CardUpload {
 public:
  CardUpload(const DeviceFacts& facts, ArenaPlan& plan) : facts_(facts), plan_(plan) {}

  // Throws Error that names the matrix when no kernel is registered for it.
  void add(const std::string& name, const MatrixPieces& matrices, CardPieces& target);
  void add(const std::string& name, const std::vector<float>& values, const float*& target);
  void add_embedding(const WeightMatrix& table, WeightMatrix& target);
  void add(const RankWeights& weights, CardWeights& target);

  // Most bytes of prepared activations that a product of `n_tokens` columns needs.
  int64_t prepared_bytes(int64_t n_tokens) const;

  // Packs on all threads of the pool. Throws Error that names a matrix whose codes a kernel cannot
  // hold.
  void upload(const Arena& arena, Device& device, Stream& stream, ThreadPool& pool);

 private:
  struct Entry {
    int block;
    int64_t n_bytes;
    std::function<std::vector<std::byte>()> pack;
    std::function<void(const std::byte*)> place;
  };
  void add_layer(const std::string& name, const LayerWeights& weights, CardLayer& target);

  const DeviceFacts& facts_;
  ArenaPlan& plan_;
  std::vector<Entry> entries_;
  std::vector<LinearCudaPlan> plans_;
};

}  // namespace lockstep
