// Shared-memory layout of the skinny kernels: what the plan requests and the kernels use.
#pragma once

#include <cstdint>

namespace lockstep {

// sm80: rows of activations are this much longer than their values, so that the eight lanes of a
// phase (two rows, four chunks) meet eight different groups of banks.
inline constexpr int kSm80RowPadding = 64;
inline constexpr int kSm80Groups = 2;          // of eight warps
inline constexpr int kSm80PartialStride = 20;  // floats from one column's 16 rows to the next
inline constexpr int kSm80PartialFloats = 8 * kSm80PartialStride;
// Two buffers: a group writes one while slow warps still add up the other.
inline constexpr int64_t kSm80PartialBytes = int64_t{4} * kSm80Groups * 2 * 8 * kSm80PartialFloats;

// Copies of weights in flight a warp, one less than stages; few where the activations fill the
// memory.
inline constexpr int kSm80Stages = 6;
constexpr int sm80_few_stages(int stage_bytes) {
  return stage_bytes > 1152 ? 2 : 3;
}
// Of int4, with the scales of its groups; n_groups in a block of 128 columns.
constexpr int sm80_int4_stage_bytes(int n_groups) {
  return 1024 + 512 * n_groups;
}

constexpr int64_t skinny_sm80_bytes(int64_t padded_cols, int n_tokens, int stages,
                                    int stage_bytes) {
  return kSm80PartialBytes + int64_t{8} * kSm80Groups * stages * stage_bytes +
         n_tokens * (2 * padded_cols + kSm80RowPadding);
}

inline constexpr int kSm70PartialStride = 36;  // floats from one column's 32 rows to the next
inline constexpr int64_t kSm70PartialBytes = int64_t{4} * 8 * 8 * kSm70PartialStride;  // static

}  // namespace lockstep
