// Op         Stores K and V vectors of new positions into cache pages.
// Math       fp32, bf16, fp16: round to nearest even. int8: per 64 values s = fp16(max|x| / 127);
//            code = clamp(rne(x / float(s)), -127, 127); a group of zeros (or whose s underflows to
//            0) has s = 0 and codes 0. Saturates fp16 at 65504 (a larger |value| would poison
//            attention).
// Shapes     k, v [n_tokens, n_kv_heads, head_dim] with token strides; positions first_position +
// t. Effects    writes exactly the codes and scales of those positions.
#pragma once

#include <cstdint>

#include "engine/ops/attention/kv_view.h"

namespace lockstep {

struct KvWriteArgs {
  KvView cache;
  const float* k;
  const float* v;
  int64_t k_stride;
  int64_t v_stride;
  int64_t first_position;
  int64_t n_tokens;
};

void kv_write(const KvWriteArgs& args);

// Reads one stored head vector back as float32 (exact).
void kv_read(const KvView& cache, bool value, int kv_head, int64_t position, float* out);

}  // namespace lockstep
