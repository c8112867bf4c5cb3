// Op         ops/weighted_embedding on a card.
// Math       as the CPU op, bit for bit, with Rounding::bf16.
// Shapes     table [n_rows, width] dense; sources [n_tokens] on the card, rows within the table;
//            out [n_tokens, width] dense.
// Dtypes     table float32; out bfloat16. Rows start at multiples of 16 bytes.
#pragma once

#include <cstdint>

#include "engine/device/device.h"
#include "engine/ops/weighted_embedding/weighted_embedding.h"

namespace lockstep {

struct WeightedEmbeddingCudaArgs {
  const float* table = nullptr;
  int64_t width = 0;
  const WeightedRows* sources = nullptr;
  uint16_t* out = nullptr;
  int64_t n_tokens = 0;
};

void weighted_embedding_cuda(const WeightedEmbeddingCudaArgs& args, Stream& stream);

}  // namespace lockstep
