// How far one float tensor lies from another, and whether the comparison means anything.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Row-major; a "row" is the last dimension (one position's vector for taps).
struct FloatTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;

  int64_t row_length() const { return shape.empty() ? 1 : shape.back(); }
  int64_t n_rows() const {
    return row_length() == 0 ? 0 : static_cast<int64_t>(values.size()) / row_length();
  }
  std::string shape_text() const;  // "[8, 256]"
};

struct TensorDiff {
  bool same_shape = true;  // when false nothing below is set
  double rel_l2 = 0;       // norm(a - b) / norm(b), accumulated in float64
  double worst_cos = 1;    // smallest cosine of one row
  int64_t worst_cos_row = 0;
  uint64_t max_ulp = 0;     // float32 steps between finite pairs; +0 and -0 are equal
  int64_t n_nonfinite = 0;  // NaN and infinity in `a`
  // Some |a - b| > 1e-5 + 1e-3 |b|: what a plain allclose of float16 outputs would say.
  bool fails_allclose = false;
  std::vector<int64_t> worst_at;  // coordinate of the largest |a - b| (first non-finite, if any)
  float worst_a = 0;
  float worst_b = 0;
  std::string vacuous;  // why `b` can prove nothing; empty when it can
};

// Compares `a` (judged) with `b` (oracle). rel_l2 is infinite when `a` is not finite. `b` is
// vacuous when it is empty, holds NaN or infinity, or one value throughout (all zeros included).
TensorDiff compare_tensors(const FloatTensor& a, const FloatTensor& b);

struct TensorLimit {
  double rel_l2 = 0;
  double one_minus_cos = 2;  // 2 = no limit
};

// Why `diff` breaks `limit`, or an empty string.
std::string violation(const TensorDiff& diff, const TensorLimit& limit);

}  // namespace lockstep
