// Shared memory that a block of an sm80 kernel asks for at its launch: the plan refuses a card that
// has less, and the kernels assert that these figures are theirs. sm70 kernels stay below 48 KB,
// which every card has.
#pragma once

#include "engine/ops/attention/kv_view.h"

namespace lockstep {

// Codes of K and V of a page, query rows and their weights, scales, what is kept for each row.
constexpr int decode_sm80_shared_bytes(KvType type, int n_rows) {
  const bool int8 = type == KvType::int8;
  return (int8 ? 2 * kPageTokens * 256 + 2 * 512 + 1024 : 2 * kPageTokens * 512) +
         n_rows * ((int8 ? 528 : 576) + 2 * 160 + 32 + 32 + 4);
}

// Query rows, K and V as 16-bit numbers, weights, INT8 codes in flight, maxima and factors.
constexpr int prefill_sm80_shared_bytes(KvType type, int n_rows) {
  return n_rows * (512 + 128 + 24 + 4) + 2 * kPageTokens * 512 +
         (type == KvType::int8 ? kPageTokens * 256 : 0);
}

}  // namespace lockstep
