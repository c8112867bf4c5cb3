// Which kernel multiplies a stored matrix on a card, and how it wants the matrix to lie in memory.
// Pure host code: the table below is what tests and benchmarks go through.
//
// Routes are for at most kSkinnyTokens columns a launch; more run in groups of that many, whose
// bits are those of decode. The order of a sum over K depends on K, codec and family alone.
//
//   sm70  one block 32 rows, mma.m8n8k4, four groups of eight rows side by side, activations read
//         through the caches
//   sm80  one block a multiprocessor, two groups of eight warps, each walks over tiles of 16 rows,
//         mma.m16n8k16, activations in shared memory
// Both: eight warps split K, warp w takes blocks w, w + 8, ... in that order; the eight sums are
// added in the order of warps. Groups of eight columns never mix, so a column's bits depend on
// nothing beside it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/device/device.h"
#include "engine/model/weight_matrix.h"

namespace lockstep {

enum class KernelFamily : uint8_t { sm70, sm80 };

std::string_view family_name(KernelFamily family);

inline constexpr int kSkinnyTokens = 8;  // columns of one launch
inline constexpr int kSplitWarps = 8;    // that share K

struct LinearRoute {
  Codec codec;
  KernelFamily family;
  int tile_rows;       // rows of a tile of the packed layout
  int block_columns;   // columns that one warp takes at a time
  int vector_codes;    // codes in the 16 bytes of one lane
  int stage_bytes;     // sm80: shared memory of one block of columns in flight
  int smallest_group;  // int4: groups of this many columns times a power of two; 0 otherwise
};

std::span<const LinearRoute> linear_routes();

struct LinearCudaPlan {
  const LinearRoute* route = nullptr;
  int64_t n_rows = 0;
  int64_t n_cols = 0;
  int64_t group = 0;        // int4
  int64_t padded_rows = 0;  // whole tiles; what pads is zero
  int64_t padded_cols = 0;  // whole blocks
  // Sections of the packed matrix, bytes from its start.
  int64_t scales_offset = 0;
  int64_t row_scale_offset = 0;
  int64_t weight_bytes = 0;
  // Activations of kSkinnyTokens columns as the kernel reads them, with their factors.
  int64_t factors_offset = 0;
  int64_t prepared_bytes = 0;
  int64_t shared_bytes = 0;        // least shared memory of a launch with kSkinnyTokens columns
  int64_t block_shared_bytes = 0;  // most that a block of the card may have
};

// Throws Error that names `what` when no kernel is registered for the matrix on this card.
// `family` other than the card's own runs where its PTX does: sm70 on newer cards, for tests.
LinearCudaPlan plan_linear_cuda(Codec codec, int64_t n_rows, int64_t n_cols, int64_t group,
                                KernelFamily family, int64_t block_shared_bytes,
                                std::string_view what);

KernelFamily family_of_card(const DeviceFacts& facts);

}  // namespace lockstep
