// Op         Index of the largest value; the lowest index on ties.
// Math       min { i : x[i] = max x }. Returns -1 when any value is NaN: the caller must stop.
// Shapes     x [n], n >= 1.
#pragma once

#include <cstdint>

namespace lockstep {

int64_t argmax(const float* x, int64_t n);

// log(sum_i exp(x[i])) in float64, summed in index order after subtracting the maximum.
double log_sum_exp(const float* x, int64_t n);

}  // namespace lockstep
