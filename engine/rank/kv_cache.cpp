#include "engine/rank/kv_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "engine/base/error.h"
#include "engine/ops/kv_write/kv_write.h"

namespace lockstep {

int64_t kv_bytes(const KvCacheShape& shape) {
  return int64_t{shape.n_layers} * shape.n_pages *
         kv_page_bytes(shape.type, shape.n_kv_heads, shape.head_dim);
}

KvCache::KvCache(const KvCacheShape& shape, KvHome home) : shape_(shape) {
  const auto n_bytes = static_cast<size_t>(total_bytes());
  if (n_bytes == 0) return;
  free_.resize(static_cast<size_t>(shape.n_pages));
  n_owners_.resize(free_.size());
  for (size_t i = 0; i < free_.size(); ++i) free_[i] = static_cast<uint32_t>(i);
  if (home == KvHome::device) return;
  void* memory = ::mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    fail("cannot reserve {} bytes of KV cache: use a smaller --max-context or fewer --slots",
         n_bytes);
  }
  memory_ = static_cast<std::byte*>(memory);
}

KvCache::~KvCache() {
  if (memory_ != nullptr) ::munmap(memory_, static_cast<size_t>(total_bytes()));
}

std::vector<uint32_t> KvCache::take_pages(int64_t n) {
  LOCKSTEP_CHECK(n <= n_free_pages());
  std::vector<uint32_t> pages;
  for (int64_t i = 0; i < n; ++i) {
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    pages.push_back(free_.back());
    free_.pop_back();
    n_owners_[pages.back()] = 1;
  }
  return pages;
}

void KvCache::share(const std::vector<uint32_t>& pages) {
  for (const uint32_t page : pages) {
    LOCKSTEP_CHECK(n_owners_[page] > 0);
    ++n_owners_[page];
  }
}

void KvCache::give_back(const std::vector<uint32_t>& pages) {
  for (const uint32_t page : pages) {
    LOCKSTEP_CHECK(n_owners_[page] > 0);
    if (--n_owners_[page] > 0) continue;
    free_.push_back(page);
    std::push_heap(free_.begin(), free_.end(), std::greater<>());
  }
}

void KvCache::copy_page(uint32_t from, uint32_t to) {
  LOCKSTEP_CHECK(memory_ != nullptr);
  const int64_t page_bytes = kv_page_bytes(shape_.type, shape_.n_kv_heads, shape_.head_dim);
  for (int layer = 0; layer < shape_.n_layers; ++layer) {
    std::byte* pool = memory_ + layer * shape_.n_pages * page_bytes;
    std::memcpy(pool + to * page_bytes, pool + from * page_bytes, static_cast<size_t>(page_bytes));
  }
}

void KvCache::audit(const std::vector<const std::vector<uint32_t>*>& owners) const {
  std::vector<uint32_t> counted(n_owners_.size(), 0);
  for (const auto* pages : owners) {
    for (const uint32_t page : *pages) ++counted.at(page);
  }
  size_t n_owned = 0;
  for (size_t page = 0; page < counted.size(); ++page) {
    LOCKSTEP_CHECK(counted[page] == n_owners_[page]);
    n_owned += counted[page] > 0 ? 1 : 0;
  }
  for (const uint32_t page : free_) LOCKSTEP_CHECK(counted.at(page) == 0);
  LOCKSTEP_CHECK(n_owned + free_.size() == counted.size());
}

KvView KvCache::view(int layer, const std::vector<uint32_t>& page_table) const {
  LOCKSTEP_CHECK(memory_ != nullptr);
  const int64_t layer_bytes =
      shape_.n_pages * kv_page_bytes(shape_.type, shape_.n_kv_heads, shape_.head_dim);
  return {shape_.type, shape_.n_kv_heads, shape_.head_dim, memory_ + layer * layer_bytes,
          page_table.data()};
}

std::vector<float> read_kv_rows(const KvView& view, bool value, int64_t first, int64_t n) {
  std::vector<float> rows(static_cast<size_t>(view.n_kv_heads * n * view.head_dim));
  for (int head = 0; head < view.n_kv_heads; ++head) {
    for (int64_t i = 0; i < n; ++i) {
      kv_read(view, value, head, first + i, rows.data() + (head * n + i) * view.head_dim);
    }
  }
  return rows;
}

}  // namespace lockstep
