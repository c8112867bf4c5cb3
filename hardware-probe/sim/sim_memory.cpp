#include "hardware-probe/sim/sim_memory.h"

#include "hardware-probe/kernels/workload.h"

namespace lockstep::probe::sim {
namespace {

constexpr size_t kErrorsKept = 16;
constexpr uint64_t kSampledWords = 4096;

uint64_t place_of(const BrokenWord& word, uint64_t n_words) {
  return static_cast<uint64_t>(word.place * static_cast<double>(n_words));
}

}  // namespace

// The last word that was written to the same cell: later addresses overwrite earlier ones.
uint64_t SimMemory::alias(uint64_t index, const Chip& chip) const {
  if (chip.real_memory_share >= 1.0) return index;
  const auto n = static_cast<uint64_t>(n_words_);
  const auto real = static_cast<uint64_t>(chip.real_memory_share * static_cast<double>(n));
  const uint64_t cell = index % real;
  return cell + (n - 1 - cell) / real * real;
}

uint64_t SimMemory::read(uint64_t index, const Chip& chip, double temperature_c,
                         double now_s) const {
  uint64_t value = pattern_word(pattern_.kind, pattern_.seed, alias(index, chip));
  for (const BrokenWord& word : chip.broken_words) {
    const bool here = place_of(word, static_cast<uint64_t>(n_words_)) == index;
    const bool active =
        temperature_c >= word.from_temperature_c && now_s - written_s_ >= word.fades_after_s;
    if (here && active) value = (value | word.stuck_high) & ~word.stuck_low;
  }
  return value;
}

Mismatches SimMemory::verify(const Pattern& expected, const Chip& chip, double temperature_c,
                             double now_s) const {
  Mismatches out;
  const auto n = static_cast<uint64_t>(n_words_);
  const auto compare = [&](uint64_t index) {
    const uint64_t want = pattern_word(expected.kind, expected.seed, index);
    const uint64_t got = read(index, chip, temperature_c, now_s);
    if (want == got) return false;
    if (out.first.size() < kErrorsKept) {
      out.first.push_back({static_cast<int64_t>(index * 8), want, got, got, ""});
    }
    return true;
  };
  for (const BrokenWord& word : chip.broken_words) out.count += compare(place_of(word, n)) ? 1 : 0;
  // Words spread over the memory stand for all the others: aliasing hits whole regions.
  const uint64_t stride = n / kSampledWords + 1;
  int64_t wrong_samples = 0;
  for (uint64_t index = 1; index < n; index += stride) wrong_samples += compare(index) ? 1 : 0;
  out.count += wrong_samples * static_cast<int64_t>(wrong_samples > 8 ? stride : 1);
  return out;
}

}  // namespace lockstep::probe::sim
