// Snapshots of finished prefill work at grid points, found again by the prompt's content.
//
// A snapshot at position G holds the KV pages of [0, G), the GDN and convolution states after G
// tokens, and the final-norm row of position G-1: MTP slot G-1 depends on the next token and is
// rebuilt on every hit. Content keys are token ids, or for image tokens a digest of the image
// and the index in it.
#pragma once

#include <cstdint>
#include <list>
#include <vector>

#include "engine/rank/kv_cache.h"
#include "engine/rank/sequence.h"

namespace lockstep {

using ContentKeys = std::vector<uint64_t>;

struct Snapshot {
  ContentKeys keys;              // [G]
  std::vector<uint32_t> pages;   // [G / kPageTokens]
  std::vector<GdnState> states;  // one per GDN layer
  std::vector<float> hidden;     // [hidden]
  int64_t last_used_round = 0;

  int64_t position() const { return static_cast<int64_t>(keys.size()); }
  int64_t state_bytes() const;
};

class PrefixCache {
 public:
  // `budget_bytes` bounds the states; pages are bounded by the KV cache. 0 turns the cache off.
  PrefixCache(KvCache& kv, int64_t budget_bytes, int64_t grid);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The snapshot with the longest prefix that is shorter than the prompt, or null. Marks it as
  // used.
  const Snapshot* find(const ContentKeys& prompt, int64_t round);

  // Grid points of this prompt at which prefill should leave a snapshot: the last one before the
  // prompt's end, and the last one before it parts from what is cached. Ascending, after `begin`.
  std::vector<int64_t> snapshot_points(const ContentKeys& prompt, int64_t begin) const;

  // Keeps `states`, those of the sequence at position G = keys.size(), and shares its pages. Evicts
  // the least recently used snapshots to stay within the budget; keeps nothing when it cannot fit.
  void insert(ContentKeys keys, const Sequence& sequence, std::vector<GdnState> states,
              const float* hidden_row, int64_t hidden_size, int64_t round);

  // Gives pages of least recently used snapshots back until `n_pages` are free; `keep` (may be
  // null) stays. False: cannot. A kept snapshot never stands in the way for good: all its pages but
  // the last are part of what the request needs, and the cache has one page to spare for each slot.
  bool free_pages(int64_t n_pages, const Snapshot* keep);

  const std::list<Snapshot>& snapshots() const { return snapshots_; }

 private:
  using Iterator = std::list<Snapshot>::iterator;
  Iterator least_recently_used(const Snapshot* keep);
  void evict(Iterator at);

  KvCache& kv_;
  int64_t budget_bytes_;
  int64_t grid_;
  int64_t used_bytes_ = 0;
  std::list<Snapshot> snapshots_;  // in order of insertion
};

}  // namespace lockstep
