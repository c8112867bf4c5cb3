// Op         ops/kv_write on a card. prepare_heads_cuda makes it together with what comes before.
// Math       as the CPU op, bit for bit.
// Shapes     k, v [n_tokens, n_kv_heads, head_dim] with token strides; head_dim 64, 128 or 256.
//            Column t is position *first_position + t. Page table and first position lie on the
//            card, so that one launch serves every length.
// Dtypes     k, v bfloat16; cache bf16, fp16 or int8.
// Effects    exactly the codes and scales of those positions.
#pragma once

#include <cstdint>

#include "engine/device/device.h"
#include "engine/ops/attention/kv_view.h"

namespace lockstep {

struct KvWriteCudaArgs {
  KvView cache;  // pool and page table on the card
  const uint16_t* k = nullptr;
  int64_t k_stride = 0;
  const uint16_t* v = nullptr;
  int64_t v_stride = 0;
  const int32_t* first_position = nullptr;
  int64_t n_tokens = 0;
};

void kv_write_cuda(const KvWriteCudaArgs& args, Stream& stream);

}  // namespace lockstep
