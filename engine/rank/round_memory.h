// What decode rounds keep on a card beside the buffers of passes: sampling, verification and
// drafts. Pure host code, so that a plan knows it before anything is loaded.
#pragma once

#include <cstdint>

#include "engine/model/config.h"
#include "engine/rank/engine_options.h"
#include "engine/rank/weights.h"

namespace lockstep {

struct RoundShape {
  int64_t n_columns = 0;  // of a round at most
  int n_spans = 0;
  int64_t n_live = 0;  // tokens that may be chosen
  int64_t n_vocab = 0;
  int64_t hidden = 0;
  int n_ranks = 1;
};

RoundShape round_shape(const ModelConfig& config, int n_ranks, const EngineOptions& options);

// Where the arrays of CardTokens lie, in bytes from the start of their block; names as there.
struct TokenPlaces {
  // What the host sends: without adjustments all of it, every round.
  int64_t columns = 0;
  int64_t forced = 0;
  int64_t last_positions = 0;
  int64_t adjustments = 0;
  int64_t sent_bytes = 0;
  // What it gets.
  int64_t results = 0;
  int64_t n_taken = 0;
  int64_t drafts = 0;
  int64_t fetched_bytes = 0;
  // Between the passes of a round.
  int64_t ids = 0;
  int64_t draft_ids = 0;
  int64_t draft_positions = 0;
  int64_t draft_first_positions = 0;
  int64_t best = 0;
  int64_t offers = 0;
  int64_t gathered = 0;
  int64_t last_rows = 0;
  int64_t between_bytes = 0;
  // Workspaces of their own.
  int64_t argmax_bytes = 0;
  int64_t sample_bytes = 0;
};

TokenPlaces token_places(const RoundShape& shape);

// Logits of draft rows and the token of each; `n_rows` rows of the head on this rank.
struct DraftRowBytes {
  int64_t stride = 0;  // floats of a row of logits
  int64_t logits = 0;
  int64_t ids = 0;
};

DraftRowBytes draft_row_bytes(int64_t n_rows, int n_slots);

// All of it, blocks of an arena each, with a draft head that is no part of the model's.
int64_t round_bytes(const ModelConfig& config, const RankDims& dims, bool has_mtp,
                    const EngineOptions& options);

}  // namespace lockstep
