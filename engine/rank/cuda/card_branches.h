// The branches of a layer on a card, in the order of branches.h: the main layers and the MTP layer
// share them.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "engine/ops/linear/cuda/linear_cuda.h"
#include "engine/rank/batch.h"
#include "engine/rank/branches.h"
#include "engine/rank/cuda/card_model.h"
#include "engine/rank/cuda/pass_inputs.h"

namespace lockstep {

struct CardBatch {
  const Batch& batch;
  const PassInputs& inputs;
  LinearPass products = LinearPass::decode;  // which order of sums they have
  int n_segments = 0;  // that launches of decode attention have; 0: enough for every context
};

// One matrix of several that multiply the same rows.
struct CardProduct {
  const CardPieces& pieces;
  void* out;
  int64_t out_stride;
  CudaOutput output = CudaOutput::bf16;
};

// x [n_columns, width] with a row stride. Matrices of one codec go together, in decode as one
// launch. `beside`: on the side stream, where products of halves must not run at the same time.
void multiply(CardModel& card, LinearPass pass, const uint16_t* x, int64_t x_stride,
              int64_t n_columns, std::initializer_list<CardProduct> products, bool beside = false);

// Each branch reads buffers.normed and leaves its half-K partial sums in buffers.partials. With two
// ranks the first of them holds the sum over ranks, and the second nothing.
void attention_branch(CardModel& card, const CardLayer& layer, const CardBatch& pass,
                      const LayerCursor& cursor);
void gdn_branch(CardModel& card, const CardLayer& layer, const CardBatch& pass,
                const LayerCursor& cursor);
void mlp_branch(CardModel& card, const CardLayer& layer, const CardBatch& pass);

// Brings the states of the batch's spans up to date in all GDN layers: spans without new columns.
void replay_gdn(CardModel& card, const CardBatch& pass);

// The two steps of attention_branch, as in branches.h.
void store_kv(CardModel& card, const CardLayer& layer, const CardBatch& pass, int kv_layer);
void attend(CardModel& card, const CardLayer& layer, const CardBatch& pass, int kv_layer);

// x += the branch in buffers.partials; buffers.normed = norm of x. x [n_columns, hidden].
void add_branch_and_norm(CardModel& card, uint16_t* x, const float* norm, int64_t n_columns);

// out = norm of x, rows `out_stride` apart.
void norm_rows(CardModel& card, uint16_t* x, const float* norm, int64_t n_columns, uint16_t* out,
               int64_t out_stride);

}  // namespace lockstep
