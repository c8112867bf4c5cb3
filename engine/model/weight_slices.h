// Views of parts of a weight matrix: no bytes are copied.
#pragma once

#include "engine/model/weight_matrix.h"

namespace lockstep {

// Rows [begin, end). For fp8_block, begin must be a multiple of 128.
WeightMatrix slice_rows(const WeightMatrix& matrix, int64_t begin, int64_t end);

// Columns [begin, end); both must be multiples of codec_column_granule (and of the scale group).
WeightMatrix slice_columns(const WeightMatrix& matrix, int64_t begin, int64_t end);

}  // namespace lockstep
