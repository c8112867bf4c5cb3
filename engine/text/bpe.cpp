#include "engine/text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>
#include <tuple>

#include "engine/base/error.h"

namespace lockstep {
namespace {

constexpr uint64_t kEmptySlot = UINT64_MAX;
constexpr uint32_t kNoRank = UINT32_MAX;
// Up to here a scan for the lowest rank beats a heap.
constexpr size_t kMaxShortPiece = 48;

uint64_t pair_key(int32_t left, int32_t right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
}

uint64_t mix(uint64_t key) {
  key *= 0x9E3779B97F4A7C15u;
  return key ^ (key >> 32);
}

}  // namespace

Bpe::Bpe(const std::array<int32_t, 256>& byte_ids, std::span<const BpeMerge> merges)
    : byte_ids_(byte_ids),
      slots_(std::bit_ceil(2 * merges.size() + 2), Slot{kEmptySlot, kNoRank, -1}),
      mask_(slots_.size() - 1) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t key = pair_key(merges[rank].left, merges[rank].right);
    uint64_t at = mix(key) & mask_;
    while (slots_[at].pair != kEmptySlot) {
      LOCKSTEP_CHECK(slots_[at].pair != key);
      at = (at + 1) & mask_;
    }
    slots_[at] = {key, static_cast<uint32_t>(rank), merges[rank].result};
  }
}

const Bpe::Slot* Bpe::find(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  for (uint64_t at = mix(key) & mask_; slots_[at].pair != kEmptySlot; at = (at + 1) & mask_) {
    if (slots_[at].pair == key) return &slots_[at];
  }
  return nullptr;
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& out) const {
  if (piece.size() <= kMaxShortPiece) {
    encode_short(piece, out);
  } else {
    encode_long(piece, out);
  }
}

void Bpe::encode_short(std::string_view piece, std::vector<int32_t>& out) const {
  std::array<int32_t, kMaxShortPiece> ids;
  std::array<const Slot*, kMaxShortPiece> merges;  // of symbol i with symbol i + 1
  size_t n = piece.size();
  for (size_t i = 0; i < n; ++i) ids[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
  for (size_t i = 0; i + 1 < n; ++i) merges[i] = find(ids[i], ids[i + 1]);
  for (;;) {
    uint32_t best_rank = kNoRank;
    size_t best = 0;
    for (size_t i = 0; i + 1 < n; ++i) {
      if (merges[i] != nullptr && merges[i]->rank < best_rank) {
        best_rank = merges[i]->rank;
        best = i;
      }
    }
    if (best_rank == kNoRank) break;
    ids[best] = merges[best]->result;
    std::copy(ids.begin() + best + 2, ids.begin() + n, ids.begin() + best + 1);
    if (best + 2 < n)
      std::copy(merges.begin() + best + 1, merges.begin() + n - 1, merges.begin() + best);
    --n;
    if (best + 1 < n) merges[best] = find(ids[best], ids[best + 1]);
    if (best > 0) merges[best - 1] = find(ids[best - 1], ids[best]);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<int64_t>(n));
}

// A doubly linked list of symbols and a heap of candidate merges; a candidate whose symbols have
// changed since is recognised by the ids that it was made for.
void Bpe::encode_long(std::string_view piece, std::vector<int32_t>& out) const {
  constexpr uint32_t kNone = UINT32_MAX;
  struct Symbol {
    int32_t id;
    uint32_t previous;
    uint32_t next;
  };
  LOCKSTEP_CHECK(piece.size() < kNone);
  const auto n = static_cast<uint32_t>(piece.size());
  std::vector<Symbol> symbols(n);
  for (uint32_t i = 0; i < n; ++i) {
    symbols[i] = {byte_ids_[static_cast<uint8_t>(piece[i])], i == 0 ? kNone : i - 1,
                  i + 1 == n ? kNone : i + 1};
  }
  using Candidate = std::tuple<uint32_t, uint32_t, const Slot*>;  // rank, left symbol, merge
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto offer = [&](uint32_t left) {
    if (left == kNone || symbols[left].next == kNone) return;
    const Slot* slot = find(symbols[left].id, symbols[symbols[left].next].id);
    if (slot != nullptr) heap.emplace(slot->rank, left, slot);
  };
  for (uint32_t i = 0; i < n; ++i) offer(i);
  constexpr int32_t kMerged = -1;
  while (!heap.empty()) {
    const auto [rank, left, slot] = heap.top();
    heap.pop();
    const uint32_t right = symbols[left].next;
    if (symbols[left].id == kMerged || right == kNone ||
        pair_key(symbols[left].id, symbols[right].id) != slot->pair) {
      continue;
    }
    symbols[left].id = slot->result;
    symbols[left].next = symbols[right].next;
    if (symbols[right].next != kNone) symbols[symbols[right].next].previous = left;
    symbols[right].id = kMerged;
    offer(symbols[left].previous);
    offer(left);
  }
  for (uint32_t i = 0; i != kNone; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace lockstep
