// Op         ops/verify on a card, and what the MTP passes after a round read: tokens, places and
//            rows of the columns that stayed, then of one draft after another. Integers and copies.
// Math       verify_cuda: chosen[c] = forced[c] where that is a token, else results[c].token;
//              n_taken as ops/verify; ids[c] = chosen[c] of the columns that stay, 0 of the others;
//              the last column that stays gives a span's place.
//            take_rows_cuda: out[s] = rows[first_column + n_taken - 1].
//            offer_drafts_cuda: this rank's best row with its logit; id -1 where argmax found none.
//            next_draft_cuda: the draft is the offer with the largest logit, the first of equal
//              ones, 0 without any. The place moves on by one, but not beyond `last_positions`.
// Shapes     a span is a row of drafts of one sequence; at most kVerifySpans. fed, ids, forced,
//            results [n_columns]; places, drafts, best [n_spans]; offers [n_ranks, n_spans]; rows
//            and out [*, width] dense.
// Dtypes     int32; rows bfloat16, width a multiple of 8.
// Effects    what `out` pointers name.
// Oracle     verify; every result is exact.
#pragma once

#include <cstdint>

#include "engine/device/device.h"
#include "engine/ops/rope/rope.h"
#include "engine/ops/sample/cuda/sample_cuda.h"

namespace lockstep {

inline constexpr int kVerifySpans = 8;

struct VerifySpan {
  int32_t first_column;
  int32_t n_columns;
};

// Where the next MTP pass stands: arrays [n_spans] on the card.
struct DraftPlaces {
  int32_t* ids = nullptr;
  RopePosition* positions = nullptr;
  int32_t* first_positions = nullptr;
};

struct VerifyCudaArgs {
  VerifySpan spans[kVerifySpans];
  int n_spans = 0;
  const int32_t* fed = nullptr;
  const RopePosition* positions = nullptr;   // [n_columns]
  const int32_t* first_positions = nullptr;  // [n_spans]
  const SampleResult* results = nullptr;
  const int32_t* forced = nullptr;  // -1: the chosen one
  int32_t* ids = nullptr;
  int32_t* n_taken = nullptr;  // [n_spans]
  DraftPlaces last;            // without ids
};

void verify_cuda(const VerifyCudaArgs& args, Stream& stream);

struct TakeRowsCudaArgs {
  VerifySpan spans[kVerifySpans];
  int n_spans = 0;
  const int32_t* n_taken = nullptr;
  const uint16_t* rows = nullptr;
  uint16_t* out = nullptr;
  int64_t width = 0;
};

void take_rows_cuda(const TakeRowsCudaArgs& args, Stream& stream);

struct DraftOffer {
  float logit;
  int32_t id;
};

struct OfferDraftsCudaArgs {
  int n_spans = 0;
  const int32_t* best = nullptr;  // rows, of argmax_cuda
  const float* logits = nullptr;  // [n_spans] rows with a stride
  int64_t stride = 0;
  const int32_t* row_ids = nullptr;  // token of each row
  DraftOffer* offers = nullptr;
};

void offer_drafts_cuda(const OfferDraftsCudaArgs& args, Stream& stream);

struct NextDraftCudaArgs {
  int n_spans = 0;
  int n_ranks = 1;
  const DraftOffer* offers = nullptr;
  const int32_t* last_positions = nullptr;
  int32_t* drafts = nullptr;
  DraftPlaces places;
};

void next_draft_cuda(const NextDraftCudaArgs& args, Stream& stream);

}  // namespace lockstep
