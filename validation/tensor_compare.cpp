#include "validation/tensor_compare.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>

#include "engine/base/error.h"

namespace lockstep {
namespace {

// The defaults that frameworks use for float16; a figure beside our own, never a verdict.
constexpr double kAllcloseRelative = 1e-3;
constexpr double kAllcloseAbsolute = 1e-5;

// Floats in their numeric order as integers, so that neighbours differ by one and both zeros are 0.
int64_t ordered_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const int64_t magnitude = bits & 0x7fffffffu;
  return (bits & 0x80000000u) != 0 ? -magnitude : magnitude;
}

std::vector<int64_t> coordinate(const std::vector<int64_t>& shape, size_t index) {
  std::vector<int64_t> at(shape.size());
  auto rest = static_cast<int64_t>(index);
  for (size_t d = shape.size(); d-- > 0;) {
    at[d] = rest % shape[d];
    rest /= shape[d];
  }
  return at;
}

std::string vacuous_reason(const FloatTensor& oracle) {
  if (oracle.values.empty()) return "the oracle's tensor is empty";
  bool constant = true;
  for (const float value : oracle.values) {
    if (!std::isfinite(value)) return "the oracle's tensor holds NaN or infinity";
    constant = constant && value == oracle.values[0];
  }
  // A tensor of one element (a scalar norm) is constant by nature; only zero proves nothing.
  if (constant && oracle.values[0] == 0) return "the oracle's tensor is all zeros";
  if (constant && oracle.values.size() > 1) return "the oracle's tensor is constant";
  return {};
}

struct RowSums {
  double diff2 = 0;
  double dot = 0;
  double a2 = 0;
  double b2 = 0;
};

RowSums sum_row(const float* a, const float* b, int64_t n) {
  RowSums sums;
  for (int64_t i = 0; i < n; ++i) {
    const double x = a[i];
    const double y = b[i];
    sums.diff2 += (x - y) * (x - y);
    sums.dot += x * y;
    sums.a2 += x * x;
    sums.b2 += y * y;
  }
  return sums;
}

// Two zero rows point the same way; a zero row against another one does not.
double cosine(const RowSums& sums) {
  if (sums.a2 == 0 && sums.b2 == 0) return 1;
  if (sums.a2 == 0 || sums.b2 == 0) return 0;
  return sums.dot / std::sqrt(sums.a2) / std::sqrt(sums.b2);
}

// Ulps, non-finite values and the worst element.
void compare_elements(const FloatTensor& a, const FloatTensor& b, TensorDiff& diff) {
  size_t worst = 0;
  double worst_error = -1;
  for (size_t i = 0; i < a.values.size(); ++i) {
    const float x = a.values[i];
    const float y = b.values[i];
    double error = std::numeric_limits<double>::infinity();
    if (!std::isfinite(x)) {
      ++diff.n_nonfinite;
    } else if (std::isfinite(y)) {
      const int64_t steps = ordered_bits(x) - ordered_bits(y);
      diff.max_ulp = std::max(diff.max_ulp, static_cast<uint64_t>(steps < 0 ? -steps : steps));
      error = std::fabs(double{x} - double{y});
    }
    // Written so that NaN fails.
    if (!(error <= kAllcloseAbsolute + kAllcloseRelative * std::fabs(double{y}))) {
      diff.fails_allclose = true;
    }
    if (error > worst_error) {
      worst_error = error;
      worst = i;
    }
  }
  diff.worst_at = coordinate(a.shape, worst);
  diff.worst_a = a.values[worst];
  diff.worst_b = b.values[worst];
}

}  // namespace

std::string FloatTensor::shape_text() const {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

TensorDiff compare_tensors(const FloatTensor& a, const FloatTensor& b) {
  TensorDiff diff;
  diff.vacuous = vacuous_reason(b);
  diff.same_shape = a.shape == b.shape;
  if (!diff.same_shape || b.values.empty()) return diff;
  LOCKSTEP_CHECK(a.values.size() == b.values.size());
  compare_elements(a, b, diff);
  double diff2 = 0;
  double b2 = 0;
  const int64_t n = b.row_length();
  for (int64_t row = 0; row < b.n_rows(); ++row) {
    const RowSums sums = sum_row(a.values.data() + row * n, b.values.data() + row * n, n);
    diff2 += sums.diff2;
    b2 += sums.b2;
    const double cos = cosine(sums);
    // Written so that NaN (a non-finite row) counts as the worst.
    if (!(cos >= diff.worst_cos)) {
      diff.worst_cos = std::isnan(cos) ? -1 : cos;
      diff.worst_cos_row = row;
    }
  }
  const bool judgeable = diff.n_nonfinite == 0 && diff.vacuous.empty();
  diff.rel_l2 = judgeable ? std::sqrt(diff2 / b2) : std::numeric_limits<double>::infinity();
  if (!judgeable) diff.worst_cos = -1;
  return diff;
}

std::string violation(const TensorDiff& diff, const TensorLimit& limit) {
  if (!diff.same_shape) return "shape differs from the oracle's";
  if (diff.n_nonfinite > 0) {
    return fmt::format("{} NaN or infinite values, the first at [{}]", diff.n_nonfinite,
                       fmt::join(diff.worst_at, ", "));
  }
  // Written so that NaN violates.
  if (!(diff.rel_l2 <= limit.rel_l2)) {
    return fmt::format("relative L2 {:.3g} > {:.3g}, worst element [{}]: {:.6g} instead of {:.6g}",
                       diff.rel_l2, limit.rel_l2, fmt::join(diff.worst_at, ", "), diff.worst_a,
                       diff.worst_b);
  }
  if (!(1 - diff.worst_cos <= limit.one_minus_cos)) {
    return fmt::format("1 - cosine {:.3g} > {:.3g} in row {}", 1 - diff.worst_cos,
                       limit.one_minus_cos, diff.worst_cos_row);
  }
  return {};
}

}  // namespace lockstep
