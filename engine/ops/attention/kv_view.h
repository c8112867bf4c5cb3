// Where one layer's K and V of one sequence lie: fixed pages, reached through a page table.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

enum class KvType : uint8_t { fp32, bf16, fp16, int8 };

inline constexpr int kPageTokens = 64;      // positions in a page; divides kAttentionSegment
inline constexpr int kInt8ScaleGroup = 64;  // values of one head vector that share an INT8 scale

constexpr int64_t kv_element_bytes(KvType type) {
  return type == KvType::fp32 ? 4 : type == KvType::int8 ? 1 : 2;
}

// Layout of one page of one layer:
//   K codes [n_kv_heads][kPageTokens][head_dim], V codes likewise, then for int8 the fp16 scales:
//   K scales [n_kv_heads][kPageTokens][head_dim / 64], V scales likewise.
constexpr int64_t kv_page_bytes(KvType type, int n_kv_heads, int head_dim) {
  const int64_t vectors = int64_t{2} * n_kv_heads * kPageTokens;
  const int64_t scales = type == KvType::int8 ? int64_t{2} * (head_dim / kInt8ScaleGroup) : 0;
  return vectors * (head_dim * kv_element_bytes(type) + scales);
}

// A view of one sequence's pages in one layer. Position p lies in page page_table[p / kPageTokens]
// of `pool`, at offset p % kPageTokens. Indices are 64-bit: 262,144 positions times pages
// overflow 32.
struct KvView {
  KvType type = KvType::bf16;
  int n_kv_heads = 0;
  int head_dim = 0;
  std::byte* pool = nullptr;
  const uint32_t* page_table = nullptr;

  std::byte* page(int64_t position) const {
    return pool +
           int64_t{page_table[position / kPageTokens]} * kv_page_bytes(type, n_kv_heads, head_dim);
  }
  int64_t vector_index(int kv_head, int64_t position) const {
    return int64_t{kv_head} * kPageTokens + position % kPageTokens;
  }
  std::byte* k_codes(int kv_head, int64_t position) const {
    return page(position) + vector_index(kv_head, position) * head_dim * kv_element_bytes(type);
  }
  std::byte* v_codes(int kv_head, int64_t position) const {
    return k_codes(kv_head, position) +
           int64_t{n_kv_heads} * kPageTokens * head_dim * kv_element_bytes(type);
  }
  // int8 only: head_dim / 64 binary16 scales.
  uint16_t* k_scales(int kv_head, int64_t position) const {
    std::byte* scales = page(position) + int64_t{2} * n_kv_heads * kPageTokens * head_dim;
    return reinterpret_cast<uint16_t*>(scales) +
           vector_index(kv_head, position) * (head_dim / kInt8ScaleGroup);
  }
  uint16_t* v_scales(int kv_head, int64_t position) const {
    return k_scales(kv_head, position) +
           int64_t{n_kv_heads} * kPageTokens * (head_dim / kInt8ScaleGroup);
  }
};

}  // namespace lockstep
