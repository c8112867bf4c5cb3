#include "engine/lockstep/round_record.h"

#include <fmt/core.h>

namespace lockstep {

std::string differing_field(const RoundRecord& a, const RoundRecord& b) {
  if (a.round != b.round) return "round";
  if (a.n_tokens != b.n_tokens) return "n_tokens";
  if (a.token_hash != b.token_hash) return "token_hash";
  if (a.positions != b.positions) return "positions";
  if (a.decoding_slots != b.decoding_slots) return "decoding_slots";
  if (a.rows_digest != b.rows_digest) return "rows_digest";
  return "";
}

std::string to_text(const RoundRecord& record) {
  return fmt::format(
      "round={} n_tokens={} token_hash={:016x} positions={} decoding_slots={:x} "
      "rows_digest={:016x}",
      record.round, record.n_tokens, record.token_hash, record.positions, record.decoding_slots,
      record.rows_digest);
}

}  // namespace lockstep
