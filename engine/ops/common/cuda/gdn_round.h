// One sequence's part of a decode round, as the Gated DeltaNet ops see it.
//
// A round that verifies drafts must not yet change the states: only the sampler knows how many of
// its columns stay. So a slot keeps its states of before the round and a record of the round's raw
// inputs, and the next round starts by replaying the columns that stayed: the same operations on
// the same inputs, hence the same bits, and the states are read and written once a round.
//
// Rows of a span are the replayed columns, then the new ones; row r of span s lies at
// kGdnRoundRows s + r of every array that is passed between the ops. States are stored after
// n_committed rows; the record keeps the rows from there on. Cases:
//   verification         n_committed = n_replayed: the new columns wait for the sampler
//   without drafts       n_committed = n_replayed + n_new, and nothing to replay the next time
//   before a prefill     n_new = 0: brings the states up to date
//   not in this round    n_replayed = n_new = 0
#pragma once

#include <cstdint>

namespace lockstep {

inline constexpr int kGdnRoundColumns = 8;  // most of each kind
inline constexpr int kGdnRoundRows = 2 * kGdnRoundColumns;

// Lies on the card, so that one recorded graph serves every round.
struct GdnSpan {
  int32_t slot;          // whose states and record
  int32_t first_column;  // of the round: the first of the new columns
  int32_t n_replayed;    // columns of the slot's record, from its start
  int32_t n_new;
  int32_t n_committed;
};

}  // namespace lockstep
