// Op         ops/causal_conv on a card, for the rows of a prefill and for decode rounds.
// Math       as ops/causal_conv, operation by operation: the same bits.
// Shapes     m [n_columns, n_channels] raw inputs, out [n_rows, n_channels], both with row strides;
//            weight [n_channels, 4]; window [kConvWindowRows, n_channels] a slot: rows 0..2 are the
//            last three inputs, oldest first, then raw inputs of columns that are not committed.
// Dtypes     bfloat16; weight float32. n_channels and strides are multiples of 8, pointers of 16
//            bytes.
// Effects    prefill: out and rows 0..2 of the window; decode: rows of out that the spans have, and
//            the windows of their slots. Spans of one launch have different slots.
// Aliasing   none.
// Order      decode: starts early (early_launch.cuh); windows, spans and weights must be older
//            than the launch right before.
// Oracle     causal_conv_oracle; bound: tolerance::causal_conv_bound, then one rounding.
#pragma once

#include <cstdint>

#include "engine/device/device.h"
#include "engine/ops/common/cuda/gdn_round.h"

namespace lockstep {

inline constexpr int kConvWindowRows = 3 + kGdnRoundColumns;

struct CausalConvCudaArgs {
  const uint16_t* m = nullptr;
  int64_t m_stride = 0;
  const float* weight = nullptr;
  uint16_t* window = nullptr;  // prefill: of the sequence; decode: of slot 0
  int64_t slot_stride = 0;     // decode: elements from a slot's window to the next one's
  uint16_t* out = nullptr;
  int64_t out_stride = 0;
  int64_t n_tokens = 0;            // prefill
  const GdnSpan* spans = nullptr;  // decode: [n_spans] on the card
  int n_spans = 0;
  int n_channels = 0;
};

// The window must hold nothing that is not committed.
void causal_conv_prefill_cuda(const CausalConvCudaArgs& args, Stream& stream);
void causal_conv_decode_cuda(const CausalConvCudaArgs& args, Stream& stream);

}  // namespace lockstep
