// Op         ops/embedding on a card.
// Math       as the CPU op, bit for bit, with Rounding::bf16. An id outside the table gives a row
//            of NaN: ids may come from kernels, and nothing may be read out of bounds.
// Shapes     ids [n_tokens] on the card; out [n_tokens, n_cols] dense.
// Dtypes     table bf16, f16 or f32; out bfloat16. Rows of both start at multiples of 16 bytes.
#pragma once

#include <cstdint>

#include "engine/device/device.h"
#include "engine/model/weight_matrix.h"

namespace lockstep {

struct EmbeddingCudaArgs {
  Codec codec = Codec::bf16;
  const std::byte* table = nullptr;
  int64_t row_bytes = 0;
  int64_t n_table_rows = 0;
  int64_t n_cols = 0;
  const int32_t* ids = nullptr;
  int64_t n_tokens = 0;
  uint16_t* out = nullptr;
};

void embedding_cuda(const EmbeddingCudaArgs& args, Stream& stream);

}  // namespace lockstep
