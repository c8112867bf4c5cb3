// Byte-pair encoding of one piece by merge rank.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

struct BpeMerge {
  int32_t left;
  int32_t right;
  int32_t result;
};

class Bpe {
 public:
  // `byte_ids`: the token of each byte. The rank of a merge is its place in `merges`; no pair
  // twice.
  Bpe(const std::array<int32_t, 256>& byte_ids, std::span<const BpeMerge> merges);

  // Appends the tokens of `piece`: the pair of lowest rank (the leftmost of equals) is merged until
  // no pair has a rank.
  void encode(std::string_view piece, std::vector<int32_t>& out) const;

 private:
  struct Slot {
    uint64_t pair;
    uint32_t rank;
    int32_t result;
  };

  const Slot* find(int32_t left, int32_t right) const;
  void encode_short(std::string_view piece, std::vector<int32_t>& out) const;
  void encode_long(std::string_view piece, std::vector<int32_t>& out) const;

  std::array<int32_t, 256> byte_ids_;
  std::vector<Slot> slots_;  // open addressing, a power of two in size
  uint64_t mask_ = 0;
};

}  // namespace lockstep
