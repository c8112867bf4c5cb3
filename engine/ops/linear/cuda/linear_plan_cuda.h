// Which kernel multiplies a stored matrix on a card, and how it wants the matrix to lie in memory.
// Pure host code: the table below is what tests and benchmarks go through.
//
// A route has kernels for two passes (LinearPass, linear_cuda.h):
//
//   decode   1..8 columns a launch, more in groups of eight with the same bits. Skinny kernels:
//     sm70   one block 32 rows, mma.m8n8k4, four groups of eight rows side by side, activations
//            read through the caches; eight warps split K
//     sm80   one or two blocks a multiprocessor, groups of four warps that split K walk over tiles
//            of 16 rows, mma.m16n8k16, activations in shared memory; several matrices in one launch
//     Warp w takes blocks of columns w, w + warps, ... in that order; the sums of the warps are
//     added in their order.
//   prefill  any number of columns, from 1 to the grid of prompts. Tiled kernels, no split of K:
//     sm70   a warp has 32 rows x 32 columns (16 where sums are scaled)
//     sm80   a block has 128 rows x 32 columns up to 32 columns, x 64 up to 64 and where sums are
//            scaled, x 128 beyond: the width moves no bit
//     cards of 9.0   64, 128 or 256 rows x 32, 64 or 128 columns by warp groups: a tile's shape
//            moves no bit either
//
// The order of a sum over K depends on K, codec, pass and family (9.0 or not, for prefill) alone.
// Columns never mix, so a column's bits depend on nothing beside it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/device/device.h"
#include "engine/model/weight_matrix.h"
#include "engine/ops/linear/cuda/skinny_shared.h"

namespace lockstep {

enum class KernelFamily : uint8_t { sm70, sm80, sm90 };

std::string_view family_name(KernelFamily family);

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

// Whether one launch may multiply both with the same activations (linear_group_cuda), and whether
// they may be halves of K (linear_halves_cuda).
bool multiply_together(const LinearCudaPlan& a, const LinearCudaPlan& b);
bool multiply_as_halves(const LinearCudaPlan& a, const LinearCudaPlan& b);

}  // namespace lockstep
