// What the ranks exchange after every round: what they must agree on (I2), and what each has seen.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// Plain data, exchanged byte for byte. A difference in a field of the first group halts the
// service.
struct RoundRecord {
  uint64_t round = 0;
  uint64_t n_tokens = 0;        // tokens booked in this round, all slots
  uint64_t token_hash = 0;      // XXH3 chain over the tokens, slots in order
  uint64_t positions = 0;       // sum of the slots' committed positions
  uint64_t decoding_slots = 0;  // bit i: slot i decodes
  uint64_t rows_digest = 0;     // XXH3 chain over the replicated final-norm rows of all columns

  uint64_t seen = 0;  // requests that have arrived at this rank; the smaller number counts
  // Bit i: this rank asks to end slot i; from kMaxSlots on, the requests that wait. OR-ed.
  uint64_t cancel_bits = 0;
};

// Name of the first field of the first group that differs, or empty.
std::string differing_field(const RoundRecord& a, const RoundRecord& b);

// "round=3 n_tokens=1 token_hash=... ": one line for failure messages.
std::string to_text(const RoundRecord& record);

}  // namespace lockstep
