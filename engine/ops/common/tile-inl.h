// Two small matrix kernels with a fixed order of every sum, for the ops that multiply by something
// other than a stored weight. Blocking changes which sums run side by side, never the order inside
// one.
//   dot_rows    sums over the columns of both factors, in the 16 lanes of lanes-inl.h
//   fma_matrix  C += A B, each element by FMA over the inner index, ascending, from the value C
//   held
// The second factor is a Source: load(row, column) gives one vector of float32, so that cache pages
// can be read in the type that they store.
//
// Included once per instruction set by Highway's foreach_target.

#if defined(LOCKSTEP_ENGINE_OPS_COMMON_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_ENGINE_OPS_COMMON_TILE_INL_H_
#undef LOCKSTEP_ENGINE_OPS_COMMON_TILE_INL_H_
#else
#define LOCKSTEP_ENGINE_OPS_COMMON_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "engine/ops/common/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {

// AVX-512 has 32 registers, AVX2 has 16: tiles that leave room for the operands.
constexpr int kTileRows = 6;
constexpr int kTileVecs = kVecLanes == 16 ? 4 : 2;
constexpr int kTileKeys = kVecLanes == 16 ? 4 : 1;

struct FloatSource {
  const float* data;
  int64_t stride;

  HWY_INLINE FloatVec load(int64_t row, int64_t column) const {
    return hn::LoadU(FloatTag(), data + row * stride + column);
  }
};

// Calls tile.run<R>(first_row) on 6, 4 or 1 rows at a time until n_rows are done: groups of 4 and 6
// heads are common, and each size costs a copy of every kernel.
template <class Tile>
HWY_INLINE void for_row_tiles(int64_t n_rows, const Tile& tile) {
  int64_t row = 0;
  for (; row + 6 <= n_rows; row += 6) tile.template run<6>(row);
  if (n_rows - row >= 4) {
    tile.template run<4>(row);
    row += 4;
  }
  for (; row < n_rows; ++row) tile.template run<1>(row);
}

// lanes_tree_sum of kVecLanes times 16 stored lanes.
HWY_INLINE FloatVec tree_sums(const float* lanes) {
  Lanes16 a[kVecLanes];
  LOCKSTEP_UNROLL
  for (int i = 0; i < kVecLanes; ++i) a[i] = lanes_load(lanes + 16 * i);
  return lanes_tree_sums<kVecLanes>(a);
}

template <class Source>
struct DotTile {
  const float* a;
  int64_t a_stride;
  const Source& keys;
  int64_t first_key;
  int64_t depth;
  float* lanes;  // [row][16 keys][16 lanes]

  template <int kRows>
  HWY_INLINE void run(int64_t row) const {
    for (int key = 0; key < 16; key += kTileKeys) {
      FloatVec sum[kRows][kTileKeys][kVecs];
      LOCKSTEP_UNROLL
      for (int r = 0; r < kRows; ++r) {
        LOCKSTEP_UNROLL
        for (int j = 0; j < kTileKeys; ++j) {
          LOCKSTEP_UNROLL
          for (int i = 0; i < kVecs; ++i) sum[r][j][i] = hn::Zero(FloatTag());
        }
      }
      const float* a_row = a + row * a_stride;
      for (int64_t k = 0; k < depth; k += 16) {
        FloatVec b[kTileKeys][kVecs];
        LOCKSTEP_UNROLL
        for (int j = 0; j < kTileKeys; ++j) {
          LOCKSTEP_UNROLL
          for (int i = 0; i < kVecs; ++i) {
            b[j][i] = keys.load(first_key + key + j, k + i * kVecLanes);
          }
        }
        LOCKSTEP_UNROLL
        for (int r = 0; r < kRows; ++r) {
          LOCKSTEP_UNROLL
          for (int i = 0; i < kVecs; ++i) {
            const FloatVec x = hn::LoadU(FloatTag(), a_row + r * a_stride + k + i * kVecLanes);
            LOCKSTEP_UNROLL
            for (int j = 0; j < kTileKeys; ++j) sum[r][j][i] = hn::MulAdd(x, b[j][i], sum[r][j][i]);
          }
        }
      }
      LOCKSTEP_UNROLL
      for (int r = 0; r < kRows; ++r) {
        LOCKSTEP_UNROLL
        for (int j = 0; j < kTileKeys; ++j) {
          float* to = lanes + ((row + r) * 16 + key + j) * 16;
          LOCKSTEP_UNROLL
          for (int i = 0; i < kVecs; ++i) hn::StoreU(sum[r][j][i], FloatTag(), to + i * kVecLanes);
        }
      }
    }
  }
};

// out[r * out_stride + j] = scale * (row r of a . row first_key + j of keys) for j < 16; depth is a
// multiple of 16 and n_rows at most kMaxDotRows.
constexpr int kMaxDotRows = 24;

template <class Source>
HWY_NOINLINE void dot_rows(const float* a, int64_t a_stride, int64_t n_rows, const Source& keys,
                           int64_t first_key, int64_t depth, float scale, float* out,
                           int64_t out_stride) {
  alignas(64) float lanes[kMaxDotRows * 256];
  for_row_tiles(n_rows, DotTile<Source>{a, a_stride, keys, first_key, depth, lanes});
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int j = 0; j < 16; j += kVecLanes) {
      const FloatVec sums = tree_sums(lanes + (r * 16 + j) * 16);
      hn::StoreU(hn::Mul(sums, hn::Set(FloatTag(), scale)), FloatTag(), out + r * out_stride + j);
    }
  }
}

// A element (r, k) lies at a[r * a_row_stride + k * a_k_stride]: the same kernel takes A
// transposed.
template <class Source, int kNumVecs>
struct FmaTile {
  const float* a;
  int64_t a_row_stride;
  int64_t a_k_stride;
  const Source& b;
  int64_t n_k;
  int64_t column;
  float* c;
  int64_t c_stride;

  template <int kRows>
  HWY_INLINE void run(int64_t row) const {
    const FloatTag d;
    FloatVec sum[kRows][kNumVecs];
    LOCKSTEP_UNROLL
    for (int r = 0; r < kRows; ++r) {
      LOCKSTEP_UNROLL
      for (int i = 0; i < kNumVecs; ++i) {
        sum[r][i] = hn::LoadU(d, c + (row + r) * c_stride + column + i * kVecLanes);
      }
    }
    const float* a_k = a + row * a_row_stride;
    for (int64_t k = 0; k < n_k; ++k, a_k += a_k_stride) {
      FloatVec v[kNumVecs];
      LOCKSTEP_UNROLL
      for (int i = 0; i < kNumVecs; ++i) v[i] = b.load(k, column + i * kVecLanes);
      LOCKSTEP_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const FloatVec x = hn::Set(d, a_k[r * a_row_stride]);
        LOCKSTEP_UNROLL
        for (int i = 0; i < kNumVecs; ++i) sum[r][i] = hn::MulAdd(x, v[i], sum[r][i]);
      }
    }
    LOCKSTEP_UNROLL
    for (int r = 0; r < kRows; ++r) {
      LOCKSTEP_UNROLL
      for (int i = 0; i < kNumVecs; ++i) {
        hn::StoreU(sum[r][i], d, c + (row + r) * c_stride + column + i * kVecLanes);
      }
    }
  }
};

// C [n_rows, n_columns] += A [n_rows, n_k] B [n_k, n_columns]; n_columns a multiple of 16.
template <class Source>
HWY_NOINLINE void fma_matrix(const float* a, int64_t a_row_stride, int64_t a_k_stride,
                             int64_t n_rows, const Source& b, int64_t n_k, int64_t n_columns,
                             float* c, int64_t c_stride) {
  int64_t column = 0;
  for (; column + kTileVecs * kVecLanes <= n_columns; column += kTileVecs * kVecLanes) {
    for_row_tiles(n_rows, FmaTile<Source, kTileVecs>{a, a_row_stride, a_k_stride, b, n_k, column, c,
                                                     c_stride});
  }
  for (; column < n_columns; column += kVecLanes) {
    for_row_tiles(n_rows,
                  FmaTile<Source, 1>{a, a_row_stride, a_k_stride, b, n_k, column, c, c_stride});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_ENGINE_OPS_COMMON_TILE_INL_H_
