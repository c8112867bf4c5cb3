// Shared-memory layout of the skinny kernels: what the plan requests and the kernels use.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define LOCKSTEP_SHARED_LAYOUT __host__ __device__ constexpr
#else
#define LOCKSTEP_SHARED_LAYOUT constexpr
#endif

namespace lockstep {

inline constexpr int kSkinnyTokens = 8;  // columns of one launch

// sm80: rows of activations are this much longer than their values, so that the eight lanes of a
// phase (two rows, four chunks) meet eight different groups of banks.
inline constexpr int kSm80RowPadding = 64;
inline constexpr int kSm80SplitWarps = 4;      // a group: warps that share K
inline constexpr int kSm80PartialStride = 20;  // floats from one column's 16 rows to the next

// Groups of a block and stages of a warp's ring; copies in flight are one less.
struct Sm80Shape {
  int groups;
  int stages;
};
// Half of a multiprocessor: two blocks of a large matrix share one; of a small matrix it has one,
// and the next kernel fills its rings beside it while this one ends. Where activations are too long
// for that, the largest shape that fits.
inline constexpr Sm80Shape kSm80HalfShapes[] = {{4, 4}, {4, 3}};
inline constexpr Sm80Shape kSm80FullShapes[] = {{8, 3}, {6, 3}, {4, 3}, {4, 2}, {2, 2}};

// Of int4, with the scales of its groups; n_groups in a block of 128 columns.
constexpr int sm80_int4_stage_bytes(int n_groups) {
  return 1024 + 128 * n_groups;
}

// Sums of one warp for one tile: only of pairs of columns that are there.
LOCKSTEP_SHARED_LAYOUT int sm80_partial_floats(int n_tokens) {
  return (n_tokens + 1) / 2 * 2 * kSm80PartialStride;
}
// Of a group. Two buffers: it writes one while slow warps still add up the other.
constexpr int sm80_partial_bytes(int n_tokens) {
  return 4 * 2 * kSm80SplitWarps * sm80_partial_floats(n_tokens);
}

constexpr int64_t skinny_sm80_bytes(int64_t padded_cols, int n_tokens, Sm80Shape shape,
                                    int stage_bytes) {
  return int64_t{shape.groups} *
             (sm80_partial_bytes(n_tokens) + kSm80SplitWarps * shape.stages * stage_bytes) +
         n_tokens * (2 * padded_cols + kSm80RowPadding);
}

// A block may have block_bytes, and 1024 more of a multiprocessor are taken beside each.
constexpr bool is_half_of_a_multiprocessor(int64_t bytes, int64_t block_bytes) {
  return 2 * bytes + 1024 <= block_bytes;
}
constexpr Sm80Shape skinny_sm80_shape(int64_t padded_cols, int n_tokens, int stage_bytes,
                                      int64_t block_bytes) {
  for (const Sm80Shape shape : kSm80HalfShapes) {
    const int64_t bytes = skinny_sm80_bytes(padded_cols, n_tokens, shape, stage_bytes);
    if (is_half_of_a_multiprocessor(bytes, block_bytes)) return shape;
  }
  for (const Sm80Shape shape : kSm80FullShapes) {
    if (skinny_sm80_bytes(padded_cols, n_tokens, shape, stage_bytes) <= block_bytes) return shape;
  }
  return {0, 0};
}

inline constexpr int kSm70PartialStride = 36;  // floats from one column's 32 rows to the next
inline constexpr int64_t kSm70PartialBytes = int64_t{4} * 8 * 8 * kSm70PartialStride;  // static

}  // namespace lockstep
