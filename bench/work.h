// How much arithmetic and how many bytes the work is, whatever computes it. A multiply-add counts
// as two operations. What norms, convolutions, gates and the sampler need is left out: below 1 %.
#pragma once

#include <cstdint>

#include "engine/model/checkpoint.h"
#include "engine/model/config.h"
#include "engine/model/weight_matrix.h"
#include "engine/ops/attention/kv_view.h"

namespace lockstep {

int64_t linear_flops(int64_t n_rows, int64_t n_cols, int64_t n_tokens);

// Bytes of codes and scales, as WeightMatrix describes them, without padding. `group`: int4 only.
int64_t matrix_bytes(Codec codec, int64_t n_rows, int64_t n_cols, int64_t group);

// Causal attention of tokens [first, first + n): q.k and p.v over every visible position.
int64_t attention_flops(int64_t n_heads, int64_t head_dim, int64_t first, int64_t n_tokens);

// K and V of one layer for positions [0, n), INT8 scales included.
int64_t kv_bytes(KvType type, int64_t n_kv_heads, int64_t head_dim, int64_t n_positions);

// Gated delta rule in its recurrent form (read-out of k, update, read-out of q); the chunked form
// does more arithmetic for the same tokens, which is its own affair.
int64_t gated_delta_flops(int64_t n_v_heads, int64_t dk, int64_t dv, int64_t n_tokens);

// A whole prompt from position 0: layers for every token, the head for the last one. With `mtp`
// also the MTP layer (without head) for every token.
int64_t prefill_flops(const ModelConfig& config, int64_t n_tokens, bool mtp);

// Stored bytes that decode reads. Embedding (a row a token) and vision are not among them.
struct WeightBytes {
  int64_t round = 0;  // layers, final norm and head: once a round
  int64_t draft = 0;  // MTP layer and head again: once a draft; 0 without MTP
};

WeightBytes weight_bytes(const Checkpoint& checkpoint, const ModelConfig& config);

struct DecodeWork {
  int64_t n_rounds = 0;
  int64_t n_drafts = 0;        // in all rounds together
  int64_t first_position = 0;  // of the first round
  int64_t n_tokens = 0;        // emitted by all rounds together
  KvType kv = KvType::bf16;
};

// Bytes read by all rounds together: weights, K and V up to the position of each round (which is
// taken to grow evenly) and gated-delta states.
int64_t decode_bytes(const ModelConfig& config, const WeightBytes& weights, const DecodeWork& work);

}  // namespace lockstep
