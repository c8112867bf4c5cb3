// Finds added tokens (control tokens such as <|im_end|>) in raw text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep {

class AddedTokenMatcher {
 public:
  AddedTokenMatcher();

  // `content` must not be empty and must not have been added before.
  void add(const std::string& content, int32_t id);

  struct Match {
    size_t begin;  // text.size() when there is none
    size_t end;
    int32_t id;
  };
  // The leftmost match at or after `from`; the longest of those that begin there.
  Match find(std::string_view text, size_t from) const;

 private:
  // A trie: edge (node << 8 | byte) -> node, and the id that ends at a node (-1: none).
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<int32_t> node_ids_;
  std::array<bool, 256> starts_{};
};

}  // namespace lockstep
