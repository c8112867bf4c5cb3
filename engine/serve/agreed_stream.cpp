#include "engine/serve/agreed_stream.h"

#include <algorithm>

namespace lockstep::serve {

std::optional<std::string> AgreedStream::add(int rank, std::string_view bytes) {
  if (n_ranks_ == 1) {
    n_agreed_ += bytes.size();
    return std::string(bytes);
  }
  if (ahead_.empty() || ahead_rank_ == rank) {
    ahead_rank_ = rank;
    ahead_ += bytes;
    return std::string();
  }
  const size_t n = std::min(ahead_.size(), bytes.size());
  const auto differ =
      std::mismatch(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n), ahead_.begin());
  const auto n_same = static_cast<size_t>(differ.first - bytes.begin());
  n_agreed_ += n_same;
  if (n_same < n) return std::nullopt;
  ahead_.erase(0, n);
  if (bytes.size() > n) {
    ahead_rank_ = rank;
    ahead_ = bytes.substr(n);
  }
  return std::string(bytes.substr(0, n));
}

std::string take_whole_events(std::string& text) {
  const size_t end = text.rfind("\n\n");
  if (end == std::string::npos) return {};
  std::string whole = text.substr(0, end + 2);
  text.erase(0, end + 2);
  return whole;
}

}  // namespace lockstep::serve
