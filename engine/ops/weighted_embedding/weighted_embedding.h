// Op         Weighted sum of four rows of a table: interpolated position embeddings.
// Math       out[t,:] = round( ((w0 r0 + w1 r1) + w2 r2) + w3 r3 ), r_j = table[rows[t][j], :]
//            The first product is rounded, the others are fused with their sums, in that order.
// Shapes     table [n_rows, width] dense; rows, weights [n_tokens][4]; out [n_tokens, width] dense.
// Dtypes     float32; out rounded as `rounding` says.
#pragma once

#include <array>
#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/ops/common/rounding.h"

namespace lockstep {

struct WeightedRows {
  std::array<int32_t, 4> rows;
  std::array<float, 4> weights;
};

struct WeightedEmbeddingArgs {
  const float* table;
  int64_t n_rows;
  int64_t width;
  const WeightedRows* sources;  // [n_tokens]
  float* out;
  int64_t n_tokens;
  Rounding rounding;
};

void weighted_embedding(const WeightedEmbeddingArgs& args, ThreadPool& pool);
// value and condition (sum of |w_j r_j|) are [n_tokens, width], dense.
void weighted_embedding_oracle(const WeightedEmbeddingArgs& args, double* value, double* condition);

}  // namespace lockstep
