// engine/base/math.h on a card: the same operations in the same order, so the same bits. Sources
// are compiled without contraction (ci/cmake/lockstep_cuda.cmake).
#pragma once

#include <cuda_runtime.h>

namespace lockstep::cuda {

__device__ __forceinline__ double exp_f64(double x) {
  if (x != x) return x;
  if (x > 709.782712893384) return __longlong_as_double(0x7ff0000000000000ll);
  if (x < -745.2) return 0.0;
  const double n = rint(x * 1.4426950408889634);
  const double r = (x - n * 0x1.62e42fefa3800p-1) - n * 0x1.ef35793c76730p-45;
  double sum = 0.0;
#pragma unroll 1
  for (int k = 17; k >= 1; --k) sum = (sum + 1.0) * (r / k);
  return ldexp(1.0 + sum, static_cast<int>(n));
}

// |x| <= 2^20
__device__ __forceinline__ void sincos_f64(double x, double* sine, double* cosine) {
  const double n = rint(x * 0.63661977236758134);
  const double r =
      ((x - n * 0x1.921fb54400000p+0) - n * 0x1.0b4611a600000p-34) - n * 0x1.3198a2e037073p-69;
  const double r2 = r * r;
  double s = 0.0;
#pragma unroll 1
  for (int k = 19; k >= 3; k -= 2) s = (s + 1.0) * (-r2 / (k * (k - 1)));
  s = r + r * s;
  double c = 0.0;
#pragma unroll 1
  for (int k = 20; k >= 2; k -= 2) c = (c + 1.0) * (-r2 / (k * (k - 1)));
  c = 1.0 + c;
  const int quadrant = static_cast<int>(n) & 3;
  const double a = (quadrant & 1) != 0 ? c : s;
  const double b = (quadrant & 1) != 0 ? s : c;
  *sine = quadrant >= 2 ? -a : a;
  *cosine = quadrant == 1 || quadrant == 2 ? -b : b;
}

}  // namespace lockstep::cuda
