// What the ranks must agree on after every prefill chunk and every decode round (I2).
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// Plain data, compared byte for byte through the mailbox. A difference in any field halts the
// service.
struct RoundRecord {
  uint64_t round = 0;
  uint64_t n_tokens = 0;     // tokens booked in this round, all slots
  uint64_t token_hash = 0;   // of (slot, token) pairs in order
  uint64_t positions = 0;    // sum of the slots' committed positions
  uint64_t rows_digest = 0;  // of the replicated final-norm rows that were sampled from
};

// Name of the first field that differs, or empty.
std::string differing_field(const RoundRecord& a, const RoundRecord& b);

// "round=3 n_tokens=1 token_hash=... ": one line for failure messages.
std::string to_text(const RoundRecord& record);

}  // namespace lockstep
