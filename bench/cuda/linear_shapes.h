// Matrices of the 27B model as a rank meets them: whole (TP=1) and halved. Row-parallel products
// always run at half K (two launches at TP=1), so only the half is listed.
#pragma once

#include <cstdint>

namespace lockstep::bench_cuda {

struct LinearShape {
  const char* name;
  int64_t n_rows;
  int64_t n_cols;
};

inline constexpr LinearShape kShapes27B[] = {
    {"gate_up", 34816, 5120},      {"gate_up half", 17408, 5120}, {"down half-K", 5120, 8704},
    {"GDN qkvz", 16384, 5120},     {"GDN qkvz half", 8192, 5120}, {"attn qkv", 14336, 5120},
    {"attn qkv half", 7168, 5120}, {"out half-K", 5120, 3072},    {"lm_head half", 124160, 5120},
};

}  // namespace lockstep::bench_cuda
