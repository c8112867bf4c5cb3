#include "engine/base/math.h"

#include <cmath>
#include <limits>

#include "engine/base/error.h"

namespace lockstep {
namespace {

constexpr double kLog2E = 1.4426950408889634;
// ln 2 and pi/2 as sums of parts with trailing zero bits: n * part is exact for the n that occur.
constexpr double kLn2High = 0x1.62e42fefa3800p-1;
constexpr double kLn2Low = 0x1.ef35793c76730p-45;
constexpr double kPiHalf1 = 0x1.921fb54400000p+0;
constexpr double kPiHalf2 = 0x1.0b4611a600000p-34;
constexpr double kPiHalf3 = 0x1.3198a2e037073p-69;

// Taylor series of sin and cos on |r| <= pi/4, from the smallest term up.
double sin_kernel(double r) {
  const double r2 = r * r;
  double sum = 0.0;
  for (int k = 19; k >= 3; k -= 2) sum = (sum + 1.0) * (-r2 / (k * (k - 1)));
  return r + r * sum;
}

double cos_kernel(double r) {
  const double r2 = r * r;
  double sum = 0.0;
  for (int k = 20; k >= 2; k -= 2) sum = (sum + 1.0) * (-r2 / (k * (k - 1)));
  return 1.0 + sum;
}

}  // namespace

double exp_f64(double x) {
  if (std::isnan(x)) return x;
  if (x > 709.782712893384) return std::numeric_limits<double>::infinity();
  if (x < -745.2) return 0.0;
  const double n = std::nearbyint(x * kLog2E);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double sum = 0.0;
  for (int k = 17; k >= 1; --k) sum = (sum + 1.0) * (r / k);
  return std::ldexp(1.0 + sum, static_cast<int>(n));
}

double log_f64(double x) {
  LOCKSTEP_CHECK(x > 0.0);
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // [0.5, 1)
  if (m < 0.70710678118654757) {
    m *= 2.0;
    --exponent;
  }
  // log m = 2 artanh(s), |s| <= 0.172
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double sum = 0.0;
  for (int k = 25; k >= 3; k -= 2) sum = (sum + 1.0 / k) * s2;
  return (exponent * kLn2Low + 2.0 * s * sum + 2.0 * s) + exponent * kLn2High;
}

void sincos_f64(double x, double* sin, double* cos) {
  LOCKSTEP_CHECK(std::fabs(x) <= 0x1p20);
  const double n = std::nearbyint(x * 0.63661977236758134);
  const double r = ((x - n * kPiHalf1) - n * kPiHalf2) - n * kPiHalf3;
  const double s = sin_kernel(r);
  const double c = cos_kernel(r);
  switch (static_cast<long long>(n) & 3) {
    case 0:
      *sin = s, *cos = c;
      return;
    case 1:
      *sin = c, *cos = -s;
      return;
    case 2:
      *sin = -s, *cos = -c;
      return;
    default:
      *sin = -c, *cos = s;
      return;
  }
}

double pow_f64(double base, double exponent) {
  return exp_f64(exponent * log_f64(base));
}

}  // namespace lockstep
