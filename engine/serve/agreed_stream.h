// What both ranks have sent of one answer, byte for byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::serve {

class AgreedStream {
 public:
  explicit AgreedStream(int n_ranks) : n_ranks_(n_ranks) {}

  // Takes the next bytes of `rank` and returns those on which all ranks now agree (maybe none);
  // nothing when the ranks differ: first_difference() then says where.
  std::optional<std::string> add(int rank, std::string_view bytes);

  // Every byte that a rank has sent was agreed upon.
  bool level() const { return ahead_.empty(); }
  size_t n_ahead() const { return ahead_.size(); }
  uint64_t first_difference() const { return n_agreed_; }

 private:
  int n_ranks_;
  int ahead_rank_ = 0;
  std::string ahead_;  // sent by ahead_rank_ alone
  uint64_t n_agreed_ = 0;
};

// Takes whole server-sent events (up to and with their blank line) from the front of `text`, which
// keeps what has no end yet.
std::string take_whole_events(std::string& text);

}  // namespace lockstep::serve
