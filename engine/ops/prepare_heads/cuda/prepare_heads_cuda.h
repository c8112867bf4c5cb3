// Op         What lies between the projections of full attention and attention itself, in one pass:
//            norm, rotation and transform of queries and keys, and K and V into the cache.
// Math       q_out = hadamard(rope(rmsnorm(q))), k likewise and then ops/kv_write; v ops/kv_write;
//            every op rounds to bfloat16. The bits of rmsnorm_cuda, rope_cuda, hadamard_cuda and
//            kv_write_cuda one after the other, which are the CPU's.
// Shapes     q [n_tokens, n_heads, head_dim] with token and head strides (query and gate of a head
//            lie side by side), q_out dense; k, v [n_tokens, n_kv_heads, head_dim] with token
//            strides; angles of rope_angles_cuda [n_tokens, n_pairs, 2]. head_dim 64, 128 or 256;
//            n_pairs 16, 32, 64 or 128. Without q or without k and v that part is left out.
// Dtypes     bfloat16; norm weights and angles float32; cache bf16, fp16 or int8.
// Effects    q_out; codes and scales of positions *first_position + t.
#pragma once

#include <cstdint>

#include "engine/device/device.h"
#include "engine/ops/attention/kv_view.h"

namespace lockstep {

struct PrepareHeadsCudaArgs {
  const uint16_t* q = nullptr;
  int64_t q_stride = 0;
  int64_t q_head_stride = 0;
  const float* q_norm = nullptr;  // [head_dim]
  uint16_t* q_out = nullptr;
  int n_heads = 0;
  const uint16_t* k = nullptr;
  int64_t k_stride = 0;
  const float* k_norm = nullptr;
  const uint16_t* v = nullptr;
  int64_t v_stride = 0;
  KvView cache;  // pool and page table on the card; head_dim also without k and v
  const int32_t* first_position = nullptr;  // on the card
  const float* angles = nullptr;
  int n_pairs = 0;
  bool rotate = false;  // Hadamard transform of q and k
  float eps = 0.0f;
  float weight_offset = 1.0f;
  int64_t n_tokens = 0;
};

void prepare_heads_cuda(const PrepareHeadsCudaArgs& args, Stream& stream);

}  // namespace lockstep
