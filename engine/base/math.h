// Elementary functions in float64 from IEEE operations alone, so that every machine gets the same
// bits (libm's differ between versions and processors). Relative error below 4e-16 in the stated ranges.
#pragma once

namespace lockstep {

double exp_f64(double x);                           // underflows to 0 below -745, overflows above 709.78
double log_f64(double x);                           // x > 0, normal
void sincos_f64(double x, double* sin, double* cos);  // |x| <= 2^20
double pow_f64(double base, double exponent);       // base > 0: exp(exponent * log(base))

}  // namespace lockstep
