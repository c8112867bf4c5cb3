#include "engine/text/stop_strings.h"

#include <algorithm>

#include "engine/base/error.h"

namespace lockstep {

StopStrings::StopStrings(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    if (text.empty()) fail("a stop string is empty");
    Stop& stop = stops_.emplace_back();
    stop.text = std::move(text);
    stop.failure.assign(stop.text.size(), 0);
    for (size_t i = 1; i < stop.text.size(); ++i) {
      size_t n = stop.failure[i - 1];
      while (n > 0 && stop.text[n] != stop.text[i]) n = stop.failure[n - 1];
      stop.failure[i] = stop.text[n] == stop.text[i] ? n + 1 : 0;
    }
  }
}

void StopStrings::advance(Stop& stop, char c) {
  size_t n = stop.n_matched;
  while (n > 0 && stop.text[n] != c) n = stop.failure[n - 1];
  stop.n_matched = stop.text[n] == c ? n + 1 : 0;
}

std::string StopStrings::push(std::string_view text) {
  if (matched_.has_value()) return "";
  for (const char c : text) {
    pending_ += c;
    size_t longest = 0;
    for (size_t i = 0; i < stops_.size(); ++i) {
      advance(stops_[i], c);
      const bool complete = stops_[i].n_matched == stops_[i].text.size();
      if (complete && stops_[i].text.size() > longest) {
        longest = stops_[i].text.size();
        matched_ = i;
      }
    }
    if (matched_.has_value()) {
      pending_.resize(pending_.size() - longest);
      return std::exchange(pending_, "");
    }
  }
  size_t held = 0;
  for (const Stop& stop : stops_) held = std::max(held, stop.n_matched);
  std::string certain = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, certain.size());
  return certain;
}

std::string StopStrings::finish() {
  return std::exchange(pending_, "");
}

}  // namespace lockstep
