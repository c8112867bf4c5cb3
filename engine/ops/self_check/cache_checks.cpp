// Attention is exact where softmax is: one key that leads by more than exp can tell from zero, and
// equal scores over a power of two of keys. Integers up to 127 are exact in every cache type: the
// largest of each INT8 group is 127, so that its scale is one.
#include <algorithm>
#include <string>
#include <vector>

#include "engine/ops/attention/attention.h"
#include "engine/ops/kv_write/kv_write.h"
#include "engine/ops/self_check/checks.h"
#include "engine/ops/self_check/exact_match.h"

namespace lockstep {
namespace {

constexpr int kHeadDim = 64;
constexpr int kKvHeads = 2;
constexpr int kHeads = 4;
constexpr int64_t kPositions = 512;  // two segments, eight pages
constexpr int64_t kKvWidth = kKvHeads * kHeadDim;
constexpr int64_t kWidth = kHeads * kHeadDim;
constexpr int64_t kTopKeys[] = {0, 300, 511};  // leaders in either segment and at the end

const char* name_of(KvType type) {
  switch (type) {
    case KvType::fp32:
      return "fp32";
    case KvType::bf16:
      return "bf16";
    case KvType::fp16:
      return "fp16";
    case KvType::int8:
      return "int8";
  }
  return "unknown";
}

struct Cache {
  explicit Cache(KvType type) : k(static_cast<size_t>(kPositions * kKvWidth)), v(k.size()) {
    for (int64_t i = 0; i < kPositions * kKvWidth; ++i) {
      const int64_t position = i / kKvWidth;
      const int64_t d = i % kHeadDim;
      auto& key = k[static_cast<size_t>(i)];
      // One key in three can be asked for by its own dimension; the rest of a vector is zero.
      for (int64_t top = 0; top < 3; ++top) {
        if (position == kTopKeys[top] && d == top) key = 127.0f;
      }
      v[static_cast<size_t>(i)] = d == 5 ? 127.0f : static_cast<float>((i * 7 + i / 19) % 101 - 50);
    }
    const int64_t page_bytes = kv_page_bytes(type, kKvHeads, kHeadDim);
    constexpr int64_t kPages = kPositions / kPageTokens;
    pool.resize(static_cast<size_t>(kPages * page_bytes));
    for (uint32_t page = 0; page < kPages; ++page) table.push_back((page * 5 + 3) % kPages);
    view = {type, kKvHeads, kHeadDim, pool.data(), table.data()};
    kv_write({view, k.data(), v.data(), kKvWidth, kKvWidth, 0, kPositions});
  }

  float value(int64_t position, int64_t kv_head, int64_t d) const {
    return v[static_cast<size_t>(position * kKvWidth + kv_head * kHeadDim + d)];
  }

  KvView view;
  std::vector<float> k;
  std::vector<float> v;
  std::vector<std::byte> pool;
  std::vector<uint32_t> table;
};

void check_stored_values(const Cache& cache) {
  const std::string name = std::string("kv_write ") + name_of(cache.view.type);
  std::vector<float> got(kHeadDim);
  for (int64_t position = 0; position < kPositions; position += 73) {
    for (int head = 0; head < kKvHeads; ++head) {
      const auto at = static_cast<std::ptrdiff_t>(position * kKvWidth + head * kHeadDim);
      kv_read(cache.view, true, head, position, got.data());
      require_exact(name, got, {cache.v.begin() + at, cache.v.begin() + at + kHeadDim});
      kv_read(cache.view, false, head, position, got.data());
      require_exact(name, got, {cache.k.begin() + at, cache.k.begin() + at + kHeadDim});
    }
  }
}

// Three tokens at the last positions; token t asks for key kTopKeys[t] with a lead of 127 * 4.
void check_dominating_keys(const Cache& cache, ThreadPool& pool) {
  std::vector<float> q(3 * kWidth, 0.0f);
  std::vector<float> gate(3 * kWidth, 0.0f);  // sigmoid(0) = 1/2
  std::vector<float> expected(3 * kWidth);
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t h = 0; h < kHeads; ++h) {
      q[static_cast<size_t>(t * kWidth + h * kHeadDim + t)] = 32.0f;
      for (int64_t d = 0; d < kHeadDim; ++d) {
        expected[static_cast<size_t>(t * kWidth + h * kHeadDim + d)] =
            0.5f * cache.value(kTopKeys[t], h / (kHeads / kKvHeads), d);
      }
    }
  }
  std::vector<float> out = unwritten(expected.size());
  attention({q.data(), kWidth, gate.data(), kWidth, kHeadDim, kHeadDim, out.data(), kWidth,
             cache.view, kPositions - 3, 3, kHeads, 0.125f, Rounding::none},
            pool);
  require_exact(std::string("attention ") + name_of(cache.view.type), out, expected);
}

// A query of zeros scores every key alike: the result is the mean of the values.
void check_equal_scores(const Cache& cache, ThreadPool& pool) {
  const std::vector<float> q(kWidth, 0.0f);
  for (const int64_t n_keys : {int64_t{1}, int64_t{64}, kPositions}) {
    std::vector<float> expected(kWidth);
    for (int64_t i = 0; i < kWidth; ++i) {
      float sum = 0.0f;
      for (int64_t j = 0; j < n_keys; ++j) {
        sum += cache.value(j, i / kHeadDim / (kHeads / kKvHeads), i % kHeadDim);
      }
      expected[static_cast<size_t>(i)] = sum / static_cast<float>(n_keys);
    }
    std::vector<float> out = unwritten(expected.size());
    attention({q.data(), kWidth, nullptr, 0, kHeadDim, 0, out.data(), kWidth, cache.view,
               n_keys - 1, 1, kHeads, 0.125f, Rounding::none},
              pool);
    require_exact(std::string("attention ") + name_of(cache.view.type), out, expected);
  }
}

}  // namespace

void check_cache_ops(ThreadPool& pool) {
  for (const KvType type : {KvType::fp32, KvType::bf16, KvType::fp16, KvType::int8}) {
    const Cache cache(type);
    check_stored_values(cache);
    check_dominating_keys(cache, pool);
    check_equal_scores(cache, pool);
  }
}

}  // namespace lockstep
