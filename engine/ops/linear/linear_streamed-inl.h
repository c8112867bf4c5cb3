// The product for few tokens: codes stream once, each decoded block serves every token from
// registers.
//
// Included once per instruction set by Highway's foreach_target.

#if defined(LOCKSTEP_ENGINE_OPS_LINEAR_LINEAR_STREAMED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_ENGINE_OPS_LINEAR_LINEAR_STREAMED_INL_H_
#undef LOCKSTEP_ENGINE_OPS_LINEAR_LINEAR_STREAMED_INL_H_
#else
#define LOCKSTEP_ENGINE_OPS_LINEAR_LINEAR_STREAMED_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <limits>

#include "engine/ops/common/lanes-inl.h"
#include "engine/ops/linear/linear.h"
#include "engine/ops/linear/linear_decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {

// The factor of a finished sum. A NaN code makes every product of its row NaN; the fp8 decoder
// leaves that to this factor.
template <Codec kCodec>
HWY_INLINE float row_factor(const WeightMatrix& weight, int64_t row) {
  NanWatch<kCodec> watch;
  watch.look(weight.codes + row * weight.row_bytes, weight.n_cols);
  if (watch.found()) return std::numeric_limits<float>::quiet_NaN();
  return weight.row_scale == nullptr ? 1.0f : weight.row_scale[row];
}

constexpr int64_t kMaxStreamedTokens = kVecs == 1 ? 8 : 4;

// Rows of a tile, so that rows * tokens accumulators, the weights and the decoder fit the
// registers.
constexpr int streamed_rows(int n_tokens) {
  if (kVecs == 1) return n_tokens <= 4 ? 4 : 2;
  return n_tokens == 1 ? 4 : n_tokens <= 3 ? 2 : 1;
}

// Tiles of a strip of rows leave their lanes in memory, and the strip is summed as a whole: the sum
// of a row is a chain of dependent steps, which short rows would spend most of their time on.
constexpr int kStripRows = 16;

// How far ahead of the codes in use their successors are asked for: the same place in the next
// tile, because long rows are too many streams for the processor to foresee, and a page ahead where
// rows are so short that the next tile comes too soon.
constexpr int64_t kMinAhead = 4096;

HWY_INLINE int64_t bytes_ahead(int64_t tile_bytes) {
  return (kMinAhead + tile_bytes - 1) / tile_bytes * tile_bytes;
}

// The accumulators of a tile and where its rows are.
template <Codec kCodec, int kTokens>
struct StreamedTile {
  static constexpr int kRows = streamed_rows(kTokens);
  // Columns that are decoded without a branch in between.
  static constexpr int kChunk = 64;

  RowCodes<kCodec> rows[kRows];
  Segment<kCodec> segments[kRows];
  Lanes16 acc[kRows * kTokens];
  NanWatch<kCodec> watch;

  // Rows from n_rows on repeat the last one.
  HWY_INLINE StreamedTile(const WeightMatrix& weight, int64_t row, int64_t n_rows) {
    LOCKSTEP_UNROLL
    for (int r = 0; r < kRows; ++r) {
      rows[r] = RowCodes<kCodec>(weight, row + std::min<int64_t>(r, n_rows - 1));
    }
    LOCKSTEP_UNROLL
    for (int i = 0; i < kRows * kTokens; ++i) acc[i] = lanes_zero();
  }

  // nvfp4 has a scale for every block; other codecs keep that of a segment.
  HWY_INLINE void load_scales(int64_t segment) {
    if constexpr (kCodec != Codec::nvfp4) {
      LOCKSTEP_UNROLL
      for (int r = 0; r < kRows; ++r) segments[r] = rows[r].segment(segment);
    }
  }

  // Columns [k, k + 16), whose codes lie `offset` bytes into each row.
  HWY_INLINE void block(const float* packed, int64_t k, int64_t offset) {
    Lanes16 w[kRows];
    LOCKSTEP_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if constexpr (kCodec == Codec::nvfp4) segments[r] = rows[r].segment(k / 16);
      w[r] = segments[r].block(rows[r].codes + offset);
    }
    LOCKSTEP_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const Lanes16 x = lanes_load(packed + t * 16);
      LOCKSTEP_UNROLL
      for (int r = 0; r < kRows; ++r) acc[t * kRows + r] = lanes_fma(x, w[r], acc[t * kRows + r]);
    }
  }

  HWY_INLINE void chunk(const float* packed, int64_t k, int64_t offset, int64_t ahead) {
    constexpr int64_t kBytes = block_bytes(kCodec);
    LOCKSTEP_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const std::byte* codes = rows[r].codes + offset;
      LOCKSTEP_UNROLL
      for (int64_t line = 0; line < kChunk / 16 * kBytes; line += 64) {
        hwy::Prefetch(codes + ahead + line);
      }
      watch.look(codes, kChunk);
    }
    if constexpr (kTokens == 1) {
      LOCKSTEP_UNROLL
      for (int b = 0; b < kChunk / 16; ++b) block(packed + b * 16, k + b * 16, offset + b * kBytes);
    } else {
      // More tokens have work enough for a loop, and no registers to spare.
      for (int b = 0; b < kChunk / 16; ++b) {
        block(packed + b * kTokens * 16, k + b * 16, offset + b * kBytes);
      }
    }
  }

  // Lanes [token][kStripRows][16] of the strip, from this tile's first row on.
  HWY_INLINE void store(float* lanes) const {
    LOCKSTEP_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      LOCKSTEP_UNROLL
      for (int r = 0; r < kRows; ++r) {
        lanes_store(acc[t * kRows + r], lanes + (t * kStripRows + r) * 16);
      }
    }
  }
};

// Leaves the lanes of rows [row, row + n_rows) and says whether one of them may hold a NaN code.
template <Codec kCodec, int kTokens>
HWY_INLINE bool streamed_tile(const LinearArgs& args, const float* packed, int64_t row,
                              int64_t n_rows, int64_t ahead, float* lanes) {
  using Tile = StreamedTile<kCodec, kTokens>;
  constexpr bool kSegments = kCodec == Codec::fp8_block || kCodec == Codec::int4;
  const WeightMatrix& weight = args.weight;
  const int64_t n_cols = weight.n_cols;
  Tile tile(weight, row, n_rows);
  const int64_t step = kSegments ? RowCodes<kCodec>::segment_columns(weight) : n_cols;
  int64_t offset = 0;  // bytes into each row
  int64_t k = 0;
  for (int64_t segment = 0; k < n_cols; ++segment) {
    const int64_t end = std::min(k + step, n_cols);
    tile.load_scales(segment);
    for (; k + Tile::kChunk <= end; k += Tile::kChunk) {
      tile.chunk(packed, k, offset, ahead);
      packed += Tile::kChunk * kTokens;
      offset += Tile::kChunk / 16 * block_bytes(kCodec);
    }
    for (; k < end; k += 16) {
      LOCKSTEP_UNROLL
      for (int r = 0; r < Tile::kRows; ++r) tile.watch.look(tile.rows[r].codes + offset, 16);
      tile.block(packed, k, offset);
      packed += 16 * kTokens;
      offset += block_bytes(kCodec);
    }
  }
  tile.store(lanes);
  return tile.watch.found();
}

// Sums, scales, rounds and stores rows [row, row + n_rows) of every token.
template <Codec kCodec, int kTokens>
void finish_strip(const LinearArgs& args, const float* lanes, int64_t row, int64_t n_rows,
                  bool found_nan) {
  const WeightMatrix& weight = args.weight;
  alignas(64) float own_factors[kStripRows];
  const float* factors = own_factors;
  if (weight.row_scale != nullptr && n_rows == kStripRows && !found_nan) {
    factors = weight.row_scale + row;
  } else {
    for (int r = 0; r < kStripRows; ++r) {
      const int64_t index = row + std::min<int64_t>(r, n_rows - 1);
      own_factors[r] = weight.row_scale == nullptr ? 1.0f : weight.row_scale[index];
      if (found_nan) own_factors[r] = row_factor<kCodec>(weight, index);
    }
  }
  const FloatTag d;
  for (int t = 0; t < kTokens; ++t) {
    float* out = args.out + t * args.out_stride + row;
    alignas(64) float values[kStripRows];
    for (int i = 0; i < kStripRows; i += kVecLanes) {
      Lanes16 sums[kVecLanes];
      LOCKSTEP_UNROLL
      for (int r = 0; r < kVecLanes; ++r) {
        sums[r] = lanes_load(lanes + (t * kStripRows + i + r) * 16);
      }
      const FloatVec scaled = hn::Mul(lanes_tree_sums<kVecLanes>(sums), hn::LoadU(d, factors + i));
      const FloatVec value = args.rounding == Rounding::bf16 ? round_bf16_vec(scaled) : scaled;
      hn::StoreU(value, d, n_rows == kStripRows ? out + i : values + i);
    }
    if (n_rows < kStripRows) std::copy_n(values, n_rows, out);
  }
}

template <Codec kCodec, int kTokens>
void streamed_rows_of(const LinearArgs& args, const float* packed, int64_t begin, int64_t end) {
  constexpr int kRows = streamed_rows(kTokens);
  const int64_t ahead = bytes_ahead(kRows * args.weight.row_bytes);
  alignas(64) float lanes[kTokens * kStripRows * 16] = {};
  for (int64_t row = begin; row < end; row += kStripRows) {
    const int64_t n_rows = std::min<int64_t>(kStripRows, end - row);
    bool found_nan = false;
    for (int64_t r = 0; r < n_rows; r += kRows) {
      found_nan |= streamed_tile<kCodec, kTokens>(
          args, packed, row + r, std::min<int64_t>(kRows, n_rows - r), ahead, lanes + r * 16);
    }
    finish_strip<kCodec, kTokens>(args, lanes, row, n_rows, found_nan);
  }
}

template <Codec kCodec>
void streamed(const LinearArgs& args, const float* packed, int64_t begin, int64_t end) {
  switch (args.n_tokens) {
    case 1:
      return streamed_rows_of<kCodec, 1>(args, packed, begin, end);
    case 2:
      return streamed_rows_of<kCodec, 2>(args, packed, begin, end);
    case 3:
      return streamed_rows_of<kCodec, 3>(args, packed, begin, end);
    case 4:
      return streamed_rows_of<kCodec, 4>(args, packed, begin, end);
    default:
      break;
  }
  if constexpr (kMaxStreamedTokens == 8) {
    switch (args.n_tokens) {
      case 5:
        return streamed_rows_of<kCodec, 5>(args, packed, begin, end);
      case 6:
        return streamed_rows_of<kCodec, 6>(args, packed, begin, end);
      case 7:
        return streamed_rows_of<kCodec, 7>(args, packed, begin, end);
      case 8:
        return streamed_rows_of<kCodec, 8>(args, packed, begin, end);
      default:
        break;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_ENGINE_OPS_LINEAR_LINEAR_STREAMED_INL_H_
