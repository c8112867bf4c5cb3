#include "engine/rank/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/fault.h"

namespace lockstep {
namespace {

int64_t common_prefix(const ContentKeys& a, const ContentKeys& b) {
  const auto n = static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
  return std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin();
}

}  // namespace

int64_t Snapshot::state_bytes() const {
  size_t n_floats = hidden.size();
  for (const GdnState& state : states) n_floats += state.state.size() + state.conv.size();
  return static_cast<int64_t>(n_floats * sizeof(float));
}

PrefixCache::PrefixCache(KvCache& kv, int64_t budget_bytes, int64_t grid)
    : kv_(kv), budget_bytes_(budget_bytes), grid_(grid) {}

PrefixCache::~PrefixCache() {
  while (!snapshots_.empty()) evict(snapshots_.begin());
}

const Snapshot* PrefixCache::find(const ContentKeys& prompt, int64_t round) {
  Snapshot* best = nullptr;
  for (Snapshot& snapshot : snapshots_) {
    const int64_t position = snapshot.position();
    if (position >= static_cast<int64_t>(prompt.size())) continue;
    if (best != nullptr && position <= best->position()) continue;
    const int64_t allowed = fault_fires("cache.hit-past-the-prefix") ? grid_ : 0;
    if (common_prefix(snapshot.keys, prompt) >= position - allowed) best = &snapshot;
  }
  if (best != nullptr) best->last_used_round = round;
  return best;
}

std::vector<int64_t> PrefixCache::snapshot_points(const ContentKeys& prompt, int64_t begin) const {
  if (budget_bytes_ == 0) return {};
  int64_t parting = 0;
  for (const Snapshot& snapshot : snapshots_) {
    parting = std::max(parting, common_prefix(snapshot.keys, prompt));
  }
  std::vector<int64_t> points;
  for (const int64_t limit : {parting, static_cast<int64_t>(prompt.size()) - 1}) {
    const int64_t point = limit / grid_ * grid_;
    if (point > begin && (points.empty() || points.back() != point)) points.push_back(point);
  }
  return points;
}

void PrefixCache::insert(ContentKeys keys, const Sequence& sequence, std::vector<GdnState> states,
                         const float* hidden_row, int64_t hidden_size, int64_t round) {
  const auto position = static_cast<int64_t>(keys.size());
  LOCKSTEP_CHECK(position % grid_ == 0 && position == sequence.n_positions);
  for (const Snapshot& snapshot : snapshots_) {
    if (snapshot.keys == keys) return;
  }
  Snapshot snapshot;
  snapshot.keys = std::move(keys);
  snapshot.states = std::move(states);
  snapshot.hidden.assign(hidden_row, hidden_row + hidden_size);
  snapshot.last_used_round = round;
  const int64_t bytes = snapshot.state_bytes();
  if (bytes > budget_bytes_) return;
  while (used_bytes_ + bytes > budget_bytes_) evict(least_recently_used(nullptr));
  snapshot.pages.assign(sequence.page_table.begin(),
                        sequence.page_table.begin() + position / kPageTokens);
  kv_.share(snapshot.pages);
  used_bytes_ += bytes;
  snapshots_.push_back(std::move(snapshot));
}

bool PrefixCache::free_pages(int64_t n_pages, const Snapshot* keep) {
  while (kv_.n_free_pages() < n_pages) {
    const Iterator victim = least_recently_used(keep);
    if (victim == snapshots_.end()) return false;
    evict(victim);
  }
  return true;
}

// snapshots_.end() when there is none but `keep`.
PrefixCache::Iterator PrefixCache::least_recently_used(const Snapshot* keep) {
  Iterator best = snapshots_.end();
  for (Iterator at = snapshots_.begin(); at != snapshots_.end(); ++at) {
    if (&*at == keep) continue;
    if (best == snapshots_.end() || at->last_used_round < best->last_used_round) best = at;
  }
  return best;
}

void PrefixCache::evict(Iterator at) {
  kv_.give_back(at->pages);
  used_bytes_ -= at->state_bytes();
  snapshots_.erase(at);
}

}  // namespace lockstep
