#include "engine/ops/attention/cuda/attention_exact.h"

#include <fmt/core.h>

#include "engine/base/float_formats.h"
#include "engine/base/philox.h"
#include "engine/ops/kv_write/kv_write.h"

namespace lockstep {
namespace {

constexpr int64_t kWidth = int64_t{kAttentionExactKvHeads} * kAttentionHeadDim;

std::vector<float> host(uint64_t seed) {
  const AttentionExactProblem problem(seed);
  std::vector<float> out;
  for (int h = 0; h < kAttentionExactHeads; ++h) {
    const int64_t kv_head = h / (kAttentionExactHeads / kAttentionExactKvHeads);
    for (int64_t d = 0; d < kAttentionHeadDim; ++d) {
      int sum = 0;
      for (int64_t j = 0; j < kAttentionExactPositions; ++j) {
        sum += static_cast<int>(
            problem.v[static_cast<size_t>(j * kWidth + kv_head * kAttentionHeadDim + d)]);
      }
      out.push_back(
          round_to_bf16(static_cast<float>(sum) / static_cast<float>(kAttentionExactPositions)));
    }
  }
  return out;
}

}  // namespace

AttentionExactProblem::AttentionExactProblem(uint64_t seed) {
  PhiloxStream random(seed, 2);
  const auto n = static_cast<size_t>(kAttentionExactPositions * kWidth);
  std::vector<float> k(n);
  for (float& value : k) value = 2.0f * random.next_uniform() - 1.0f;
  v.resize(n);
  for (size_t i = 0; i < n; ++i) {
    // A 127 in every group of 64 makes the group's scale 1.
    v[i] = i % 64 == 0 ? 127.0f : static_cast<float>(random.next_below(255)) - 127.0f;
  }
  const int64_t n_pages = (kAttentionExactPositions + kPageTokens - 1) / kPageTokens;
  for (int64_t i = 0; i < n_pages; ++i) pages.push_back(static_cast<uint32_t>(n_pages - i));
  memory.assign(
      static_cast<size_t>((n_pages + 1) *
                          kv_page_bytes(KvType::int8, kAttentionExactKvHeads, kAttentionHeadDim)),
      std::byte{0xff});
  const KvView view{KvType::int8, kAttentionExactKvHeads, kAttentionHeadDim, memory.data(),
                    pages.data()};
  kv_write({view, k.data(), v.data(), kWidth, kWidth, 0, kAttentionExactPositions});
}

std::vector<ExactCase> attention_exact_cases() {
  std::vector<ExactCase> cases;
  for (const AttentionPath path : kAttentionExactPaths) {
    cases.push_back({fmt::format("int8 {}: mean of {} positions", attention_path_name(path),
                                 kAttentionExactPositions),
                     70, host});
  }
  return cases;
}

}  // namespace lockstep
