// Elementary functions in float64 from IEEE operations alone, so that every machine gets the same
// bits (libm's differ between versions and processors). Relative error below 4e-16 in the stated
// ranges (measured against 80-bit libm: exp 1.8e-16, log 3.2e-16, sin and cos 3.2e-16).
#pragma once

namespace lockstep {

double exp_f64(double x);  // underflows to 0 below -745, overflows above 709.78
double log_f64(double x);  // x > 0, normal
void sincos_f64(double x, double* sin, double* cos);  // |x| <= 2^20
// base > 0, normal: exp(exponent * log(base)); the relative error grows with |exponent *
// log(base)|.
double pow_f64(double base, double exponent);

}  // namespace lockstep
