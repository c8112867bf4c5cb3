// Ends a generation at strings that the request names.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Takes text in pieces of any size and gives it out up to the first stop string, wherever the
// pieces end: of all occurrences the one that ends first counts, of those that end together the
// longest. Text is held back while it may be the beginning of a stop string.
class StopStrings {
 public:
  // Throws Error for an empty stop string.
  explicit StopStrings(std::vector<std::string> stops);

  // The text that is certain. After a match, nothing more.
  std::string push(std::string_view text);
  // What was held back. The generation has ended without a match.
  std::string finish();

  // The place in the list of the stop string that matched.
  std::optional<size_t> matched() const { return matched_; }

 private:
  struct Stop {
    std::string text;
    // failure[i]: length of the longest proper prefix of text[0..i] that also ends it
    // (Knuth, Morris, Pratt).
    std::vector<size_t> failure;
    size_t n_matched = 0;  // how much of it the text so far ends with
  };

  static void advance(Stop& stop, char c);

  std::vector<Stop> stops_;
  std::string pending_;
  std::optional<size_t> matched_;
};

}  // namespace lockstep
