// Rows of activations in the shared memory of a skinny sm80 block, in the order of fragments (see
// ColumnOrder::sm80 and sm80_int4): every block converts its own, so that no launch has to do it
// before. Threads touch nothing but the runs that they copied themselves until the last barrier.
#pragma once

#include "engine/ops/common/cuda/copy_async.cuh"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/linear/cuda/activations.cuh"
#include "engine/ops/linear/cuda/tiles_sm80.cuh"

namespace lockstep::cuda {

// The rows that a block multiplies.
struct ActivationRows {
  const uint16_t* x;
  int64_t x_stride;
  int n_tokens;
  int n_cols;
  bool wide;        // runs may be copied as a whole
  uint32_t shared;  // address of the first row
  int row_bytes;    // from row to row
  int padded_cols;
};

// Bytes from the start of a row to column k, the first of a run.
template <typename Tile>
__device__ __forceinline__ int place_of_run(int k) {
  constexpr int kQuarter = Tile::kColumns / 4;
  const int in_block = k % Tile::kColumns;
  const bool interleaved = Tile::kRun == 4;
  const int quarter = interleaved ? in_block % 16 / 4 : in_block / kQuarter;
  const int value = interleaved ? in_block / 16 * 4 : in_block % kQuarter;
  return 2 * (k - in_block + value / 8 * 32 + quarter * 8 + value % 8);
}

// Calls use(token, k, address) for each run of this thread.
template <typename Tile, typename Use>
__device__ __forceinline__ void for_runs_of(const ActivationRows& rows, int token, Use use) {
  const uint32_t row = rows.shared + token * rows.row_bytes;
  for (int k = threadIdx.x * Tile::kRun; k < rows.padded_cols; k += blockDim.x * Tile::kRun) {
    use(k, row + place_of_run<Tile>(k));
  }
}

template <int kBytes>
__device__ __forceinline__ void copy_run(uint32_t to, const uint16_t* from) {
  if constexpr (kBytes == 16) {
    copy_async_16(to, from);
  } else {
    copy_async_8(to, from);
  }
}

// bfloat16 as it is, zeros beyond the last column. Copies are not committed.
template <typename Tile>
__device__ __forceinline__ void copy_activations(const ActivationRows& rows) {
  for (int token = 0; token < rows.n_tokens; ++token) {
    const uint16_t* x = rows.x + token * rows.x_stride;
    for_runs_of<Tile>(rows, token, [&](int k, uint32_t to) {
      if (rows.wide && k + Tile::kRun <= rows.n_cols) {
        copy_run<Tile::kRun * 2>(to, x + k);
        return;
      }
#pragma unroll
      for (int i = 0; i < Tile::kRun; ++i) {
        const uint32_t bits = k + i < rows.n_cols ? x[k + i] : 0u;
        store_shared_2(to + 2 * i, bits);
      }
    });
  }
}

template <int kWords>
struct Run {
  uint32_t words[kWords];

  __device__ __forceinline__ explicit Run(uint32_t from) {
    if constexpr (kWords == 4) {
      const uint4 v = load_shared_16(from);
      words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    } else {
      const uint2 v = load_shared_8(from);
      words[0] = v.x, words[1] = v.y;
    }
  }
  __device__ __forceinline__ void store(uint32_t to) const {
    if constexpr (kWords == 4) {
      store_shared_16(to, {words[0], words[1], words[2], words[3]});
    } else {
      store_shared_8(to, {words[0], words[1]});
    }
  }
};

// Largest magnitude of each row among the runs of a warp: to of_warp[token][warp].
template <typename Tile>
__device__ __forceinline__ void find_maxima(const ActivationRows& rows, uint32_t* of_warp) {
  for (int token = 0; token < rows.n_tokens; ++token) {
    uint32_t pairs = 0;
    for_runs_of<Tile>(rows, token, [&](int k, uint32_t from) {
      Run<Tile::kRun / 2> run(from);
      const bool cut = mutant(Mutant::skinny_maximum) && k + Tile::kRun == rows.n_cols;
      if (cut) run.words[Tile::kRun / 2 - 1] &= 0xffffu;
      for (const uint32_t word : run.words) pairs = larger_halves(pairs, word);
    });
    const uint32_t largest = __reduce_max_sync(0xffffffffu, max(pairs & 0xffffu, pairs >> 16));
    if (threadIdx.x % 32 == 0) of_warp[token * 32 + threadIdx.x / 32] = largest;
  }
}

// Each row times its power of two, as binary16; returns what takes it out of the sums of column
// `mine`. `of_warp`: 32 words a row, of the whole block. A barrier must follow.
template <typename Tile>
__device__ __forceinline__ float convert_activations(const ActivationRows& rows, uint32_t* of_warp,
                                                     int mine) {
  float factor = 1.0f;
  if constexpr (!Tile::kBf16) {
    find_maxima<Tile>(rows, of_warp);
    if (!mutant(Mutant::skinny_maximum_barrier)) __syncthreads();
    const int lane = threadIdx.x % 32;
    for (int token = 0; token < rows.n_tokens; ++token) {
      const uint32_t one =
          lane < static_cast<int>(blockDim.x) / 32 ? of_warp[token * 32 + lane] : 0u;
      const int shift = row_shift(__reduce_max_sync(0xffffffffu, one));
      const float scale = power_of_two(shift);
      if (token == mine) factor = power_of_two(-shift);
      for_runs_of<Tile>(rows, token, [&](int, uint32_t at) {
        Run<Tile::kRun / 2> run(at);
        for (uint32_t& word : run.words) word = scaled_pair(word, scale);
        run.store(at);
      });
    }
  }
  return factor;
}

}  // namespace lockstep::cuda
