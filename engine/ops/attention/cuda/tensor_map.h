// What the copy engine of a card (sm_90) needs to bring pages into shared memory.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace lockstep {

// Vectors of 256 16-bit numbers from `pool` on, dense, as three dimensions: 64 numbers of a panel,
// vectors, four panels. A box is the 64 vectors of a page and head, panel after panel, each with
// rows of 128 bytes whose 16-byte vectors are mixed with the row (SWIZZLE_128B). pool: a multiple
// of 16 bytes. Boxes must lie in memory that is there: the map does not know where the pool ends.
CUtensorMap map_of_pages(const std::byte* pool, bool bf16);

}  // namespace lockstep
