// Where a pass shows its rows: taps record them, a job's tensors take their place.
#pragma once

#include <cstdint>
#include <string>

#include "engine/ops/common/rounding.h"
#include "engine/rank/batch.h"

namespace lockstep {

// Whether any span of the batch records or replaces rows.
bool has_row_hooks(const Batch& batch);

// x [n_columns, width]: what the pass has computed at the place `name` of docs/formats/taps.md.
// Records the rows that the spans' taps want, then replaces those that their jobs put in, rounded
// as an activation is.
void pass_row_hooks(const Batch& batch, const std::string& name, int64_t width, Rounding rounding,
                    float* x);

}  // namespace lockstep
