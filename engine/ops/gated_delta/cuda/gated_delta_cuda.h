// Op         ops/gated_delta on a card: the recurrent form for decode rounds, the chunked form for
//            the rows of a prefill.
// Math       as ops/gated_delta. q and k are multiplied by the reciprocal of their norm (q's with
//            sqrt(dk) in it).
//            recurrent  sums over dk: eight groups of 16 rows in order by FMA, groups in pairs 1,
//            2,
//                       4 apart. A column's bits depend on the state, on its own row and on nothing
//                       else of the launch.
//            chunked    V' = X rhs with X = (I + A)^-1 by forward substitution and
//                       rhs_i = beta_i (v_i - exp(G_i) S^T kn_i). Chunks end at multiples of
//                       kGdnChunk in absolute positions, so a prefill cut there gives the same bits
//                       however it is cut. Routes:
//                       sm70  sums by FMA in order of dk or of rows, on every card
//                       sm80  matrix unit, 16 terms at a time. Rows of q and k enter as the
//                             bfloat16 they are and products are scaled afterwards; float32 factors
//                             enter as sums of three bfloat16 parts.
// Shapes     q, k [n_rows, n_k_heads, 128], v [n_rows, n_v_heads, 128] with one row stride; out
//            [n_columns, n_v_heads * 128] with a row stride; log_decay, beta [n_rows, n_v_heads]
//            dense; state [n_v_heads, 128 dk, 128 dv] a sequence.
// Dtypes     q, k, v, out bfloat16 (one rounding); log_decay, beta, state float32, never rounded.
//            Strides are multiples of 8 elements, pointers of 16 bytes.
// Effects    decode: out of the new columns, the states of slots that commit a row. prefill: out,
//            state and `workspace`.
// Order      decode: starts early (early_launch.cuh); states, spans and weights must be older
//            than the launch right before.
// Oracle     gated_delta_oracle; bounds: gated_delta_reference.h, then one rounding of out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/device/device.h"
#include "engine/ops/common/cuda/gdn_round.h"
#include "engine/ops/linear/cuda/linear_plan_cuda.h"

namespace lockstep {

inline constexpr int kGdnHeadDim = 128;

struct GatedDeltaRoute {
  KernelFamily family;
  int64_t block_shared_bytes;  // that the chunked form needs
};

// The decode kernel is one for all families.
std::span<const GatedDeltaRoute> gated_delta_routes();

struct GatedDeltaCudaPlan {
  const GatedDeltaRoute* route = nullptr;  // of the chunked form
  int n_k_heads = 0;
  int n_v_heads = 0;
  int64_t max_tokens = 0;  // of one prefill call
  int64_t workspace_bytes = 0;
  int n_multiprocessors = 0;
};

// The route of `family`, or that of sm70 where a block of the card has too little shared memory for
// it. Throws Error that names what no kernel is registered for.
GatedDeltaCudaPlan plan_gated_delta_cuda(int n_k_heads, int n_v_heads, int dk, int dv,
                                         int64_t max_tokens, KernelFamily family,
                                         const DeviceFacts& facts);

struct GatedDeltaCudaArgs {
  const GatedDeltaCudaPlan& plan;
  const uint16_t* q = nullptr;
  const uint16_t* k = nullptr;
  const uint16_t* v = nullptr;
  int64_t row_stride = 0;
  const float* log_decay = nullptr;
  const float* beta = nullptr;
  float* state = nullptr;  // prefill: of the sequence; decode: of slot 0
  uint16_t* out = nullptr;
  int64_t out_stride = 0;
};

// Rows as gdn_round.h says; out at the columns of the round. Spans of one launch have different
// slots; slot_stride: floats from a slot's state to the next one's.
void gated_delta_decode_cuda(const GatedDeltaCudaArgs& args, const GdnSpan* spans, int n_spans,
                             int64_t slot_stride, Stream& stream);

// workspace: plan.workspace_bytes; nothing in it outlives the call.
void gated_delta_prefill_cuda(const GatedDeltaCudaArgs& args, int64_t first_position,
                              int64_t n_tokens, std::byte* workspace, Stream& stream);

}  // namespace lockstep
