// Prefill attention, sm_80 and up. A block has 64 or 128 query rows (token, head of the group) of
// one KV head, whatever fills the card better, and walks over all pages that they see. Warp (r, c):
//   scores   rows 32 r..32 r + 31 against positions 32 c..32 c + 31 of the page: S = Q K^T
//   weights  relative to the warp's own running maximum, a whole number, through shared memory
//   values   the same rows, values 128 c..128 c + 127, all positions: O = P V; weights of both
//            warps of the rows are brought to their common maximum by an exact power of two
// K of the next page arrives while values are added, V while scores are formed. Rows never meet, so
// a row's bits depend on nothing beside it.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/attention/cuda/attention_shared.h"
#include "engine/ops/attention/cuda/prefill_sm80_cache.cuh"

namespace lockstep::cuda {
namespace {

template <typename Cache, int kRowsOfBlock>
struct PrefillShared {
  using CacheType = Cache;
  static constexpr int kRows = kRowsOfBlock;
  static constexpr int kThreads = 2 * kRows;
  static constexpr int kKeys = kRows * kTileRow;
  static constexpr int kValues = kKeys + kPage * kTileRow;
  static constexpr int kWeights = kValues + kPage * kTileRow;
  static constexpr int kRaw = kWeights + kRows * kWeightRow;
  static constexpr int kMaxima = kRaw + Cache::kRawBytes;
  static constexpr int kFactors = kMaxima + 3 * 2 * kRows * 4;
  static constexpr int kBytes = kFactors + kRows * 4;

  unsigned char* base;
  __device__ __forceinline__ unsigned char* queries() const { return base; }
  __device__ __forceinline__ unsigned char* keys() const { return base + kKeys; }
  __device__ __forceinline__ unsigned char* values() const { return base + kValues; }
  __device__ __forceinline__ unsigned char* weights() const { return base + kWeights; }
  __device__ __forceinline__ unsigned char* raw() const { return base + kRaw; }
  // [row][c], running maxima; a step needs those of the one before too.
  __device__ __forceinline__ float* maxima(int step) const {
    return reinterpret_cast<float*>(base + kMaxima) + step % 3 * (2 * kRows);
  }
  __device__ __forceinline__ float* factors() const {
    return reinterpret_cast<float*>(base + kFactors);
  }
};

// Rows of this block; later ones, which see more, come first.
struct BlockRows {
  int first;  // row of the launch: token * group + head of the group
  int end;    // of the launch
  int first_position;
  int group;

  __device__ __forceinline__ BlockRows(const AttentionParams& p, int n_rows) {
    first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * n_rows;
    end = p.n_tokens * p.group;
    first_position = *p.first_position;
    group = p.group;
  }
  // Last position that a row of the block sees; -1: no such row.
  __device__ __forceinline__ int newest(int row) const {
    const int ahead = mutant(Mutant::attention_prefill_mask) ? 1 : 0;
    return first + row < end ? first_position + (first + row) / group + ahead : -1;
  }
  __device__ __forceinline__ int n_steps(int n_rows) const {
    return (first_position + (min(first + n_rows, end) - 1) / group) / kPage + 1;
  }
};

template <typename Shared>
__device__ __forceinline__ void load_queries(const AttentionParams& p, const BlockRows& rows,
                                             const Shared& shared) {
  using Cache = typename Shared::CacheType;
  const int lane = threadIdx.x % 32;
  for (int row = threadIdx.x / 32; row < Shared::kRows; row += Shared::kThreads / 32) {
    const int at = rows.first + row;
    const bool inside = at < rows.end;
    const int64_t head = int64_t{blockIdx.x} * p.group + at % p.group;
    const uint16_t* q = p.q + (at / p.group) * p.q_stride + head * p.q_head_stride;
    uint32_t pairs[4];
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pairs[i] = inside ? *reinterpret_cast<const uint32_t*>(q + 2 * lane + 64 * i) : 0u;
      largest = max(largest, max(pairs[i] & 0x7fffu, pairs[i] >> 16 & 0x7fffu));
    }
    for (int d = 16; d > 0; d /= 2) largest = max(largest, __shfl_xor_sync(kAllLanes, largest, d));
    const int shift = Cache::Numbers::kBf16 ? 0 : query_shift(largest);
    const float scale = power_of_two(shift);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t scaled = Cache::Numbers::kBf16
                                  ? pairs[i]
                                  : Fp16Numbers::pack(Bf16Numbers::low(pairs[i]) * scale,
                                                      Bf16Numbers::high(pairs[i]) * scale);
      *reinterpret_cast<uint32_t*>(tile_chunk(shared.queries(), row, lane / 4 + 8 * i) +
                                   lane % 4 * 4) = scaled;
    }
    if (lane == 0) shared.factors()[row] = p.scale_log2 * power_of_two(-shift);
  }
  shared.maxima(2)[threadIdx.x] = kMasked;
}

// S of 32 rows and 32 positions: [16 rows][8 positions][..] as the matrix instruction leaves it.
template <typename N>
__device__ __forceinline__ void score(const unsigned char* queries, const unsigned char* keys,
                                      PrefillLane l, float (&scores)[2][4][4]) {
  const int low = l.lane % 8;
  const int row = 32 * l.r + low + l.lane / 8 % 2 * 8;
  const int position = 32 * l.c + low + l.lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    uint32_t q[2][4];
    uint32_t b[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      load_matrices(tile_chunk(queries, row + 16 * i, 2 * k + l.lane / 16), q[i]);
      load_matrices(tile_chunk(keys, position + 16 * i, 2 * k + l.lane / 8 % 2), b[i]);
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        N::mma(scores[m][n], q[m][0], q[m][1], q[m][2], q[m][3], b[n / 2][n % 2 * 2],
               b[n / 2][n % 2 * 2 + 1]);
      }
    }
  }
}

// Rows 32 r + 16 m + 8 h + g, as this lane sees them.
struct PrefillState {
  float maximum[2][2];      // running, of the warp's positions
  float denominator[2][2];  // of this lane's positions, relative to it

  __device__ __forceinline__ PrefillState() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      maximum[i / 2][i % 2] = kMasked;
      denominator[i / 2][i % 2] = 0.0f;
    }
  }

  // Scores become weights in shared memory. `first`: position of column 0 of the warp's scores.
  template <typename Shared>
  __device__ __forceinline__ void weigh(float (&scores)[2][4][4], int first, const BlockRows& rows,
                                        const Shared& shared, int step, PrefillLane l) {
    using N = typename Shared::CacheType::Numbers;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = 32 * l.r + 16 * m + 8 * h + l.g;
        const float factor = shared.factors()[row];
        const int columns = rows.newest(row) - first - 2 * l.t;  // that this lane may see
        float largest = kMasked;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& s = scores[m][n][2 * h + e];
            s = 8 * n + e <= columns ? s * factor : kMasked;
            largest = fmaxf(largest, s);
          }
        }
        for (int d = 1; d < 4; d *= 2) {
          largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, d));
        }
        const float next = fmaxf(maximum[m][h], reference_of(largest));
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const uint32_t pair = N::pack(weight_of(scores[m][n][2 * h], next),
                                        weight_of(scores[m][n][2 * h + 1], next));
          sum += N::low(pair) + N::high(pair);
          *reinterpret_cast<uint32_t*>(weight_chunk(shared.weights(), row, 4 * l.c + n) + l.t * 4) =
              pair;
        }
        denominator[m][h] = fmaf(denominator[m][h], exp2_whole(maximum[m][h] - next), sum);
        maximum[m][h] = next;
        if (l.t == 0) shared.maxima(step)[row * 2 + l.c] = next;
      }
    }
  }
  __device__ __forceinline__ static float weight_of(float exponent, float reference) {
    return exponent == kMasked ? 0.0f : exp2_approx(exponent - reference + kWeightShift);
  }
};

// Brings older sums to the common maximum of this step; it rarely grows.
template <typename Shared>
__device__ __forceinline__ void rescale_sums(const Shared& shared, int step, PrefillLane l,
                                             float (&sums)[2][16][4]) {
  float by[2][2];
  bool grown = false;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int at = 2 * (32 * l.r + 8 * i + l.g);
    const float2 now = *reinterpret_cast<const float2*>(shared.maxima(step) + at);
    const float2 old = *reinterpret_cast<const float2*>(shared.maxima(step + 2) + at);
    by[i / 2][i % 2] = exp2_whole(fmaxf(old.x, old.y) - fmaxf(now.x, now.y));
    grown = grown || fmaxf(now.x, now.y) > fmaxf(old.x, old.y);
  }
  if (__any_sync(kAllLanes, grown) == 0 || mutant(Mutant::attention_prefill_rescale)) return;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < 16; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][n][i] *= by[m][i / 2];
    }
  }
}

template <typename Shared>
__device__ __forceinline__ void add_page(const Shared& shared, int step, PrefillLane l,
                                         float (&sums)[2][16][4]) {
  using N = typename Shared::CacheType::Numbers;
  const int low = l.lane % 8 + l.lane / 8 % 2 * 8;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    uint32_t p[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      load_matrices(weight_chunk(shared.weights(), 32 * l.r + 16 * m + low, 2 * k + l.lane / 16),
                    p[m]);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float2 maxima = *reinterpret_cast<const float2*>(
            shared.maxima(step) + 2 * (32 * l.r + 16 * m + 8 * h + l.g));
        const float down = exp2_whole((k < 2 ? maxima.x : maxima.y) - fmaxf(maxima.x, maxima.y));
        const float by = mutant(Mutant::attention_prefill_halves) ? 1.0f : down;
        const uint32_t pair = N::pack(by, by);
        p[m][h] = N::multiply(p[m][h], pair);
        p[m][2 + h] = N::multiply(p[m][2 + h], pair);
      }
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      uint32_t v[4];
      load_matrices_transposed(
          tile_chunk(shared.values(), 16 * k + low, 16 * l.c + 2 * n + l.lane / 16), v);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        N::mma(sums[m][2 * n], p[m][0], p[m][1], p[m][2], p[m][3], v[0], v[1]);
        N::mma(sums[m][2 * n + 1], p[m][0], p[m][1], p[m][2], p[m][3], v[2], v[3]);
      }
    }
  }
}

// Denominators of both warps of the rows, the earlier positions first; then the output.
template <typename Shared>
__device__ __forceinline__ void store_rows(const AttentionParams& p, const BlockRows& rows,
                                           const Shared& shared, const PrefillState& state,
                                           int last_step, PrefillLane l,
                                           const float (&sums)[2][16][4]) {
  float* denominators = shared.maxima(last_step + 1);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float sum = state.denominator[i / 2][i % 2];
    for (int d = 1; d < 4; d *= 2) sum += __shfl_xor_sync(kAllLanes, sum, d);
    if (l.t == 0) denominators[2 * (32 * l.r + 8 * i + l.g) + l.c] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = 32 * l.r + 8 * i + l.g;
    const int at = rows.first + row;
    if (at >= rows.end) continue;
    const float2 maxima = *reinterpret_cast<const float2*>(shared.maxima(last_step) + 2 * row);
    const float2 parts = *reinterpret_cast<const float2*>(denominators + 2 * row);
    const float common = fmaxf(maxima.x, maxima.y);
    const float inverse = 1.0f / fmaf(parts.y, exp2_whole(maxima.y - common),
                                      parts.x * exp2_whole(maxima.x - common));
    const int head = static_cast<int>(blockIdx.x) * p.group + at % p.group;
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      store_gated_pair(p, at / p.group, head, 128 * l.c + 8 * n + 2 * l.t,
                       sums[i / 2][n][i % 2 * 2] * inverse,
                       sums[i / 2][n][i % 2 * 2 + 1] * inverse);
    }
  }
}

template <typename Cache, int kRows>
__global__ void __launch_bounds__(2 * kRows, kRows == 64 ? 2 : 1)
    attention_prefill_sm80(const AttentionParams p) {
  extern __shared__ __align__(128) unsigned char memory[];
  const PrefillShared<Cache, kRows> shared{memory};
  const PrefillLane l;
  const BlockRows rows(p, kRows);
  const int n_steps = rows.n_steps(kRows);
  const int n_positions = rows.first_position + p.n_tokens;  // that are stored

  Cache keys;
  Cache values;
  keys.fetch(p, page_at(p, 0), false, shared.keys(), shared.raw());
  load_queries(p, rows, shared);
  PrefillState state;
  float sums[2][16][4] = {};
  for (int step = 0; step < n_steps; ++step) {
    const uint32_t page = page_at(p, step);
    const int n_valid = n_positions - step * kPage;
    keys.finish(shared.keys(), shared.raw(), kPage);
    if (step == 0 || !mutant(Mutant::attention_prefill_barrier)) __syncthreads();
    values.fetch(p, page, true, shared.values(), shared.raw());
    float scores[2][4][4] = {};
    score<typename Cache::Numbers>(shared.queries(), shared.keys(), l, scores);
    state.weigh(scores, step * kPage + 32 * l.c, rows, shared, step, l);
    values.finish(shared.values(), shared.raw(), n_valid);
    __syncthreads();
    if (step + 1 < n_steps) {
      keys.fetch(p, page_at(p, step + 1), false, shared.keys(), shared.raw());
    }
    rescale_sums(shared, step, l, sums);
    add_page(shared, step, l, sums);
  }
  store_rows(p, rows, shared, state, n_steps - 1, l, sums);
}

template <typename Cache, int kRows>
void launch(const AttentionParams& p, cudaStream_t stream) {
  arm_mutant();
  constexpr int kBytes = PrefillShared<Cache, kRows>::kBytes;
  cuda_check(cudaFuncSetAttribute(attention_prefill_sm80<Cache, kRows>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
             "attention: dynamic shared memory");
  const dim3 blocks(p.n_kv_heads, (p.n_tokens * p.group + kRows - 1) / kRows);
  attention_prefill_sm80<Cache, kRows><<<blocks, 2 * kRows, kBytes, stream>>>(p);
  cuda_check_launch("attention_prefill_sm80");
}

// Rows of a block, so that the last wave of blocks leaves little of the card idle: the sum of rows
// that the busiest multiprocessor has. It changes no bits.
int rows_of_block(const AttentionParams& p) {
  int best = 0;
  int64_t least = 0;
  for (const int rows : {128, 64}) {
    if (rows > p.most_block_rows) continue;
    const int64_t blocks = int64_t{p.n_kv_heads} * ((p.n_tokens * p.group + rows - 1) / rows);
    const int64_t busiest = (blocks + p.n_multiprocessors - 1) / p.n_multiprocessors * rows;
    if (best == 0 || busiest < least) {
      best = rows;
      least = busiest;
    }
  }
  return best;
}

template <template <int> typename Cache, KvType kType>
void launch_rows(const AttentionParams& p, cudaStream_t stream) {
  static_assert(PrefillShared<Cache<256>, 128>::kBytes == prefill_sm80_shared_bytes(kType, 128));
  static_assert(PrefillShared<Cache<128>, 64>::kBytes == prefill_sm80_shared_bytes(kType, 64));
  if (rows_of_block(p) == 128) {
    launch<Cache<256>, 128>(p, stream);
  } else {
    launch<Cache<128>, 64>(p, stream);
  }
}

template <int kThreads>
using PrefillBf16 = PrefillHalf<Bf16Numbers, kThreads>;
template <int kThreads>
using PrefillFp16 = PrefillHalf<Fp16Numbers, kThreads>;

}  // namespace

void launch_prefill_sm80(KvType type, const AttentionParams& p, cudaStream_t stream) {
  switch (type) {
    case KvType::int8:
      return launch_rows<PrefillInt8, KvType::int8>(p, stream);
    case KvType::bf16:
      return launch_rows<PrefillBf16, KvType::bf16>(p, stream);
    default:
      return launch_rows<PrefillFp16, KvType::fp16>(p, stream);
  }
}

}  // namespace lockstep::cuda
