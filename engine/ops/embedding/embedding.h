// Op         Gathers rows of a table.
// Math       out[t,:] = table[ids[t],:]
// Shapes     ids [n_tokens], each in [0, table.n_rows); out [n_tokens, table.n_cols] dense.
// Dtypes     table bf16, f16 or f32 (exact widening); out float32, rounded as `rounding` says.
// Effects    writes out; an id outside the table is a programmer error (the caller checks
// requests).
#pragma once

#include <cstdint>

#include "engine/model/weight_matrix.h"
#include "engine/ops/common/rounding.h"

namespace lockstep {

void embedding(const WeightMatrix& table, const int32_t* ids, int64_t n_tokens, Rounding rounding,
               float* out);

}  // namespace lockstep
