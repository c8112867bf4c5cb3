// The generated character data (generate_tables.py says from what). Code reads it through
// engine/text/unicode/unicode.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::unicode_data {

// A run of code points with the same CodePointFlag bits; code points outside every run have none.
struct FlagRange {
  uint32_t first;
  uint32_t last;
  uint8_t flags;
};

// A run of code points with the same canonical combining class, not 0.
struct ClassRange {
  uint32_t first;
  uint32_t last;
  uint8_t combining_class;
};

// One step of canonical decomposition; `second` is 0 for a mapping to one code point. Hangul
// syllables, which are computed, are not listed.
struct Decomposition {
  uint32_t code;
  uint32_t first;
  uint32_t second;
  uint8_t composes;  // whether composition makes `code` from the two again
};

// Full case mapping to one to three code points; unused places are 0.
struct CaseMapping {
  uint32_t code;
  uint32_t mapped[3];
};

extern const FlagRange kFlagRanges[];
extern const size_t kFlagRangesSize;
extern const ClassRange kClassRanges[];
extern const size_t kClassRangesSize;
extern const Decomposition kDecompositions[];
extern const size_t kDecompositionsSize;
extern const CaseMapping kUpperMappings[];
extern const size_t kUpperMappingsSize;
extern const CaseMapping kLowerMappings[];
extern const size_t kLowerMappingsSize;

}  // namespace lockstep::unicode_data
