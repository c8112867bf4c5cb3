#include "engine/text/added_tokens.h"

#include "engine/base/error.h"

namespace lockstep {

AddedTokenMatcher::AddedTokenMatcher() : node_ids_(1, -1) {}

void AddedTokenMatcher::add(const std::string& content, int32_t id) {
  LOCKSTEP_CHECK(!content.empty());
  starts_[static_cast<uint8_t>(content[0])] = true;
  uint32_t node = 0;
  for (const char c : content) {
    const uint64_t edge = (uint64_t{node} << 8) | static_cast<uint8_t>(c);
    const auto [place, is_new] = edges_.try_emplace(edge, static_cast<uint32_t>(node_ids_.size()));
    if (is_new) node_ids_.push_back(-1);
    node = place->second;
  }
  LOCKSTEP_CHECK(node_ids_[node] < 0);
  node_ids_[node] = id;
}

AddedTokenMatcher::Match AddedTokenMatcher::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<uint8_t>(text[begin])]) continue;
    Match match{begin, begin, -1};
    uint32_t node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      const auto edge = edges_.find((uint64_t{node} << 8) | static_cast<uint8_t>(text[i]));
      if (edge == edges_.end()) break;
      node = edge->second;
      if (node_ids_[node] >= 0) match = {begin, i + 1, node_ids_[node]};
    }
    if (match.id >= 0) return match;
  }
  return {text.size(), text.size(), -1};
}

}  // namespace lockstep
