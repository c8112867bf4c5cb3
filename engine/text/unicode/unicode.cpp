#include "engine/text/unicode/unicode.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "engine/text/unicode/unicode_data.h"
#include "engine/text/utf8.h"

namespace lockstep {
namespace {

constexpr uint32_t kCodePoints = 0x110000;
constexpr uint32_t kPageBits = 8;
constexpr uint32_t kPageSize = 1u << kPageBits;

// Two-stage table: most of the 4352 pages are equal (all zero, or all ideographs) and are stored
// once.
class FlagTable {
 public:
  FlagTable() {
    std::vector<uint8_t> all(kCodePoints, 0);
    for (size_t i = 0; i < unicode_data::kFlagRangesSize; ++i) {
      const unicode_data::FlagRange& range = unicode_data::kFlagRanges[i];
      std::fill(all.begin() + range.first, all.begin() + range.last + 1, range.flags);
    }
    for (uint32_t page = 0; page < page_index_.size(); ++page) {
      page_index_[page] = intern({all.data() + page * kPageSize, kPageSize});
    }
  }

  uint8_t at(uint32_t code) const {
    return pages_[page_index_[code >> kPageBits] * kPageSize + (code & (kPageSize - 1))];
  }

 private:
  uint16_t intern(std::span<const uint8_t> page) {
    for (size_t i = 0; i * kPageSize < pages_.size(); ++i) {
      if (std::equal(page.begin(), page.end(),
                     pages_.begin() + static_cast<int64_t>(i * kPageSize))) {
        return static_cast<uint16_t>(i);
      }
    }
    pages_.insert(pages_.end(), page.begin(), page.end());
    return static_cast<uint16_t>(pages_.size() / kPageSize - 1);
  }

  std::array<uint16_t, kCodePoints / kPageSize> page_index_{};
  std::vector<uint8_t> pages_;
};

const FlagTable& flag_table() {
  static const FlagTable table;
  return table;
}

void append_case_mapped(std::string& out, uint32_t code,
                        std::span<const unicode_data::CaseMapping> mappings) {
  const auto found = std::lower_bound(mappings.begin(), mappings.end(), code,
                                      [](const auto& m, uint32_t c) { return m.code < c; });
  if (found == mappings.end() || found->code != code) {
    append_utf8(out, code);
    return;
  }
  for (const uint32_t mapped : found->mapped) {
    if (mapped != 0) append_utf8(out, mapped);
  }
}

// Unicode's Final_Sigma: a cased letter before, none after, case-ignorable characters skipped.
bool is_final_sigma(const std::vector<uint32_t>& codes, size_t at) {
  const auto skips = [](uint32_t code) { return (code_point_flags(code) & kCaseIgnorable) != 0; };
  const auto cased = [](uint32_t code) { return (code_point_flags(code) & kCased) != 0; };
  size_t before = at;
  while (before > 0 && skips(codes[before - 1])) --before;
  if (before == 0 || !cased(codes[before - 1])) return false;
  size_t after = at + 1;
  while (after < codes.size() && skips(codes[after])) ++after;
  return after == codes.size() || !cased(codes[after]);
}

}  // namespace

uint8_t code_point_flags(uint32_t code) {
  static const FlagTable& table = flag_table();
  return code < kCodePoints ? table.at(code) : 0;
}

bool is_python_space(uint32_t code) {
  return (code >= 0x1C && code <= 0x1F) || (code_point_flags(code) & kWhiteSpace) != 0;
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    append_case_mapped(out, next_code_point(text, &at),
                       {unicode_data::kUpperMappings, unicode_data::kUpperMappingsSize});
  }
  return out;
}

std::string to_lower(std::string_view text) {
  constexpr uint32_t kSigma = 0x3A3;
  constexpr uint32_t kFinalSigma = 0x3C2;
  const std::vector<uint32_t> codes = to_code_points(text);
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < codes.size(); ++i) {
    if (codes[i] == kSigma && is_final_sigma(codes, i)) {
      append_utf8(out, kFinalSigma);
    } else {
      append_case_mapped(out, codes[i],
                         {unicode_data::kLowerMappings, unicode_data::kLowerMappingsSize});
    }
  }
  return out;
}

}  // namespace lockstep
