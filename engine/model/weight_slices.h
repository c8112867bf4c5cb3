// Views of parts of a weight matrix: no bytes are copied.
#pragma once

#include "engine/model/weight_matrix.h"

namespace lockstep {

// A cut must fall on multiples of these: 128 rows for fp8_block, 1 otherwise; the columns that
// share a scale (16 for nvfp4, 128 for fp8_block, the group for int4), 1 otherwise.
int64_t row_cut_granule(const WeightMatrix& matrix);
int64_t column_cut_granule(const WeightMatrix& matrix);

// Rows [begin, end); begin must be a multiple of row_cut_granule.
WeightMatrix slice_rows(const WeightMatrix& matrix, int64_t begin, int64_t end);

// Columns [begin, end); begin must be a multiple of column_cut_granule.
WeightMatrix slice_columns(const WeightMatrix& matrix, int64_t begin, int64_t end);

}  // namespace lockstep
