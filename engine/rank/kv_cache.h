// KV pages of one rank: one pool per attention layer, one free list, one page table per slot that
// all layers share. A page holds kPageTokens positions. Full pages may be shared by several slots
// and by prefix-cache snapshots; they are counted and return to the free list with their last
// owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/ops/attention/kv_view.h"

namespace lockstep {

struct KvCacheShape {
  KvType type = KvType::bf16;
  int n_layers = 0;  // attention layers, MTP's included
  int n_kv_heads = 0;
  int head_dim = 0;
  int64_t n_pages = 0;
};

// Every byte of a page's pattern: small finite values as int8, fp16 and bf16.
inline constexpr uint8_t kAssumedKvByte = 0x2c;

enum class KvHome : uint8_t { host, device };

// Bytes of all pages of all layers.
int64_t kv_bytes(const KvCacheShape& shape);

class KvCache {
 public:
  // Address space is reserved at once and touched when used. Throws Error when it is refused.
  // With KvHome::device only the pages are counted here; their bytes lie elsewhere.
  explicit KvCache(const KvCacheShape& shape, KvHome home = KvHome::host);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  const KvCacheShape& shape() const { return shape_; }
  int64_t n_free_pages() const { return static_cast<int64_t>(free_.size()); }

  // Takes `n` pages (n <= n_free_pages()), lowest ids first, one owner each.
  std::vector<uint32_t> take_pages(int64_t n);
  // One more owner for each page.
  void share(const std::vector<uint32_t>& pages);
  // One owner less for each page.
  void give_back(const std::vector<uint32_t>& pages);
  // All layers' contents of one page that lies here.
  void copy_page(uint32_t from, uint32_t to);

  // The conservation law, recounted from the owners' page tables and the free list, not from the
  // counters: every page is either free or owned exactly as often as its counter says. Aborts if
  // not.
  void audit(const std::vector<const std::vector<uint32_t>*>& owners) const;

  // Pages that lie here alone.
  KvView view(int layer, const std::vector<uint32_t>& page_table) const;

  static int64_t pages_for(int64_t n_positions) {
    return (n_positions + kPageTokens - 1) / kPageTokens;
  }
  int64_t total_bytes() const { return kv_bytes(shape_); }

 private:
  KvCacheShape shape_;
  std::byte* memory_ = nullptr;
  std::vector<uint32_t> free_;      // a min-heap: allocation order is a function of the request log
  std::vector<uint32_t> n_owners_;  // [n_pages]
};

// K or V vectors of positions [first, first + n) of a layer as float32 [kv heads, n, head_dim].
std::vector<float> read_kv_rows(const KvView& view, bool value, int64_t first, int64_t n);

}  // namespace lockstep
