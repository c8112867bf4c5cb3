#include "engine/ops/verify/cuda/verify_exact.h"

#include <algorithm>

#include "engine/ops/common/exact_values.h"
#include "engine/ops/verify/verify.h"

namespace lockstep {
namespace {

constexpr uint32_t kTokens = 50;

// Tokens of each column, columns that stay, places, then the row of the last one that stays.
std::vector<float> host(uint64_t seed) {
  const VerifyExactProblem p(seed);
  std::vector<float> ids;
  std::vector<float> spans;
  std::vector<float> rows;
  for (int s = 0; s < kVerifyExactSpans; ++s) {
    const auto first = static_cast<size_t>(s) * kVerifyExactColumns;
    std::vector<int32_t> chosen;
    for (size_t c = first; c < first + kVerifyExactColumns; ++c) {
      chosen.push_back(p.forced[c] >= 0 ? p.forced[c] : p.tokens[c]);
    }
    const int32_t n_taken = verify(&p.fed[first], chosen.data(), kVerifyExactColumns);
    for (int32_t c = 0; c < kVerifyExactColumns; ++c) {
      ids.push_back(
          static_cast<float>(c < n_taken ? std::max(chosen[static_cast<size_t>(c)], 0) : 0));
    }
    const size_t last = first + static_cast<size_t>(n_taken) - 1;
    spans.push_back(static_cast<float>(n_taken));
    spans.push_back(static_cast<float>(p.first_positions[static_cast<size_t>(s)] + n_taken - 1));
    for (const int32_t axis : p.positions[last]) spans.push_back(static_cast<float>(axis));
    const auto row = p.rows.begin() + static_cast<ptrdiff_t>(last) * kVerifyExactWidth;
    rows.insert(rows.end(), row, row + kVerifyExactWidth);
  }
  ids.insert(ids.end(), spans.begin(), spans.end());
  ids.insert(ids.end(), rows.begin(), rows.end());
  return ids;
}

}  // namespace

VerifyExactProblem::VerifyExactProblem(uint64_t seed) {
  PhiloxStream random(seed, 13);
  constexpr int kColumns = kVerifyExactSpans * kVerifyExactColumns;
  for (int i = 0; i < kColumns; ++i) {
    const bool draft = i % kVerifyExactColumns != 0;
    const bool right = draft && random.next_below(5) != 0;
    const int32_t before = i == 0 ? 0 : forced.back() >= 0 ? forced.back() : tokens.back();
    fed.push_back(right ? before : static_cast<int32_t>(random.next_below(kTokens)));
    tokens.push_back(random.next_below(9) == 0 ? -1
                                               : static_cast<int32_t>(random.next_below(kTokens)));
    forced.push_back(random.next_below(5) == 0 ? static_cast<int32_t>(random.next_below(kTokens))
                                               : -1);
    RopePosition position;
    for (int32_t& axis : position) axis = static_cast<int32_t>(random.next_below(1u << 18));
    positions.push_back(position);
  }
  for (int s = 0; s < kVerifyExactSpans; ++s) {
    first_positions.push_back(static_cast<int32_t>(random.next_below(1u << 18)));
  }
  rows = exact_floats(random, kColumns * kVerifyExactWidth, 3.0f, true);
}

std::vector<ExactCase> verify_exact_cases() {
  return {{"columns that stay, places and rows of eight spans", 70, host}};
}

}  // namespace lockstep
