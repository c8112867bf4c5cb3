// Canonical decomposition, reordering and composition (Unicode Standard Annex 15).
#include <algorithm>
#include <unordered_map>
#include <vector>

#include "engine/text/unicode/unicode.h"
#include "engine/text/unicode/unicode_data.h"
#include "engine/text/utf8.h"

namespace lockstep {
namespace {

// Hangul syllables are composed by arithmetic (the Unicode Standard, section 3.12).
constexpr uint32_t kSyllableBase = 0xAC00;
constexpr uint32_t kLeadBase = 0x1100;
constexpr uint32_t kVowelBase = 0x1161;
constexpr uint32_t kTailBase = 0x11A7;
constexpr uint32_t kLeads = 19;
constexpr uint32_t kVowels = 21;
constexpr uint32_t kTails = 28;
constexpr uint32_t kSyllables = kLeads * kVowels * kTails;

struct Tables {
  std::unordered_map<uint32_t, uint8_t> combining_class;
  std::unordered_map<uint32_t, const unicode_data::Decomposition*> decompositions;
  std::unordered_map<uint64_t, uint32_t> compositions;

  Tables() {
    for (size_t i = 0; i < unicode_data::kClassRangesSize; ++i) {
      const unicode_data::ClassRange& range = unicode_data::kClassRanges[i];
      for (uint32_t code = range.first; code <= range.last; ++code) {
        combining_class[code] = range.combining_class;
      }
    }
    for (size_t i = 0; i < unicode_data::kDecompositionsSize; ++i) {
      const unicode_data::Decomposition& entry = unicode_data::kDecompositions[i];
      decompositions[entry.code] = &entry;
      if (entry.composes != 0) compositions[pair_key(entry.first, entry.second)] = entry.code;
    }
  }

  static uint64_t pair_key(uint32_t first, uint32_t second) {
    return (uint64_t{first} << 32) | second;
  }
};

const Tables& tables() {
  static const Tables instance;
  return instance;
}

struct Character {
  uint32_t code;
  uint8_t combining_class;
};

uint8_t class_of(uint32_t code) {
  const auto found = tables().combining_class.find(code);
  return found == tables().combining_class.end() ? 0 : found->second;
}

void decompose(uint32_t code, std::vector<Character>& out) {
  if (code >= kSyllableBase && code < kSyllableBase + kSyllables) {
    const uint32_t index = code - kSyllableBase;
    out.push_back({kLeadBase + index / (kVowels * kTails), 0});
    out.push_back({kVowelBase + index / kTails % kVowels, 0});
    if (index % kTails != 0) out.push_back({kTailBase + index % kTails, 0});
    return;
  }
  const auto found = tables().decompositions.find(code);
  if (found == tables().decompositions.end()) {
    out.push_back({code, class_of(code)});
    return;
  }
  decompose(found->second->first, out);
  if (found->second->second != 0) decompose(found->second->second, out);
}

void reorder(std::vector<Character>& text) {
  for (size_t begin = 0; begin < text.size();) {
    if (text[begin].combining_class == 0) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < text.size() && text[end].combining_class != 0) ++end;
    std::stable_sort(text.begin() + static_cast<int64_t>(begin),
                     text.begin() + static_cast<int64_t>(end),
                     [](const Character& a, const Character& b) {
                       return a.combining_class < b.combining_class;
                     });
    begin = end;
  }
}

// The composite of two code points, 0 when there is none.
uint32_t compose_pair(uint32_t first, uint32_t second) {
  if (first >= kLeadBase && first < kLeadBase + kLeads && second >= kVowelBase &&
      second < kVowelBase + kVowels) {
    return kSyllableBase + ((first - kLeadBase) * kVowels + second - kVowelBase) * kTails;
  }
  if (first >= kSyllableBase && first < kSyllableBase + kSyllables &&
      (first - kSyllableBase) % kTails == 0 && second > kTailBase && second < kTailBase + kTails) {
    return first + second - kTailBase;
  }
  const auto found = tables().compositions.find(Tables::pair_key(first, second));
  return found == tables().compositions.end() ? 0 : found->second;
}

std::vector<Character> compose(const std::vector<Character>& text) {
  constexpr size_t kNoStarter = SIZE_MAX;
  std::vector<Character> out;
  out.reserve(text.size());
  size_t starter = kNoStarter;
  for (const Character& next : text) {
    // Blocked: something between the starter and this one has a class that is 0 or not lower.
    const bool adjacent = starter != kNoStarter && out.size() == starter + 1;
    const bool blocked =
        !adjacent && !out.empty() && out.back().combining_class >= next.combining_class;
    if (starter != kNoStarter && !blocked) {
      const uint32_t composite = compose_pair(out[starter].code, next.code);
      if (composite != 0) {
        out[starter].code = composite;
        continue;
      }
    }
    if (next.combining_class == 0) starter = out.size();
    out.push_back(next);
  }
  return out;
}

}  // namespace

bool is_surely_nfc(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    // Nothing below U+0300 needs a look: lead bytes below 0xCC.
    if (static_cast<uint8_t>(text[at]) < 0xCC) {
      ++at;
      continue;
    }
    if ((code_point_flags(next_code_point(text, &at)) & kNfcCheck) != 0) return false;
  }
  return true;
}

std::string to_nfc(std::string_view text) {
  if (is_surely_nfc(text)) return std::string(text);
  std::vector<Character> decomposed;
  decomposed.reserve(text.size());
  for (size_t at = 0; at < text.size();) decompose(next_code_point(text, &at), decomposed);
  reorder(decomposed);
  std::string out;
  out.reserve(text.size());
  for (const Character& character : compose(decomposed)) append_utf8(out, character.code);
  return out;
}

}  // namespace lockstep
