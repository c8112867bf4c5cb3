// Op         ops/gdn_gates on a card, for the rows of a prefill and for decode rounds.
// Math       as ops/gdn_gates, in float64 with CUDA's functions, rounded once to float32.
// Shapes     a, b [n_columns, n_heads] with a row stride; a_log, dt_bias [n_heads]; log_decay, beta
//            [n_rows, n_heads] dense. record [2, kGdnRoundColumns, n_heads] a slot: decays, then
//            strengths, of columns that are not committed.
// Dtypes     a, b bfloat16, the rest float32.
// Effects    log_decay and beta; decode: of the rows that the spans have, and the records of their
//            slots. Spans of one launch have different slots.
// Order      decode: starts early (early_launch.cuh); records, spans and weights must be older
//            than the launch right before.
// Oracle     gdn_gates_oracle; bound: tolerance::kGdnGatesRelative.
#pragma once

#include <cstdint>

#include "engine/device/device.h"
#include "engine/ops/common/cuda/gdn_round.h"

namespace lockstep {

struct GdnGatesCudaArgs {
  const uint16_t* a = nullptr;
  const uint16_t* b = nullptr;
  int64_t stride = 0;  // of a and of b
  const float* a_log = nullptr;
  const float* dt_bias = nullptr;
  float* log_decay = nullptr;
  float* beta = nullptr;
  int64_t n_tokens = 0;            // prefill
  float* record = nullptr;         // decode: of slot 0
  int64_t slot_stride = 0;         // decode: elements from a slot's record to the next one's
  const GdnSpan* spans = nullptr;  // decode: [n_spans] on the card
  int n_spans = 0;
  int n_heads = 0;
};

void gdn_gates_prefill_cuda(const GdnGatesCudaArgs& args, Stream& stream);
void gdn_gates_decode_cuda(const GdnGatesCudaArgs& args, Stream& stream);

}  // namespace lockstep
