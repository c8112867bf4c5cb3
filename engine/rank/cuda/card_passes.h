// The forward pass, logits and the MTP layer on a card. Rows come to the host at the end of a pass.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/rank/cuda/card_branches.h"
#include "engine/rank/cuda/card_model.h"

namespace lockstep {

// Runs the batch through all layers and the final norm: buffers.normed [n_columns, hidden].
void card_forward(CardModel& card, const CardBatch& pass);

// buffers.logits [n_columns, vocabulary] of rows of buffers.normed, gathered over ranks.
void card_logits(CardModel& card, int64_t first_column, int64_t n_columns);

// As mtp_forward of mtp.h up to the rows of K and V: reads `hidden_rows` [n_columns, hidden], which
// may be buffers.normed, and leaves the layer's residual stream in buffers.mtp_x.
void card_mtp_store(CardModel& card, const CardBatch& pass, uint16_t* hidden_rows);
// The rest, for a batch of the last column of each span, whose rows of that residual stream are
// x [n_spans, hidden]: buffers.normed [n_spans, hidden].
void card_mtp_attend(CardModel& card, const CardBatch& last, uint16_t* x);
// Both at once, with their bits, for a batch that has one column of each span.
void card_mtp_step(CardModel& card, const CardBatch& pass, uint16_t* hidden_rows);

}  // namespace lockstep
