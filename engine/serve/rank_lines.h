// What the proxy reads from lines and status pages of ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::serve {

// The port in {"event":"listening","port":P,...}; nothing for any other line.
std::optional<uint16_t> listening_port(const std::string& line);

// Of a rank's last lines on stderr the one that says why it ended: a lockstep failure, else the
// last one that is no JSON; may be empty.
std::string telling_line(const std::vector<std::string>& lines);

struct SlotStatus {
  uint64_t sequence = 0;
  std::string phase;
  int64_t n_tokens = 0;
};

struct RankStatus {
  uint64_t round = 0;
  std::vector<SlotStatus> slots;
  std::vector<uint64_t> preparing;  // numbers that have not reached the engine
  bool encoding = false;            // a picture, in the round that runs
};

// From GET /lockstep/status; nothing when it is none.
std::optional<RankStatus> parse_rank_status(const std::string& json);

}  // namespace lockstep::serve
