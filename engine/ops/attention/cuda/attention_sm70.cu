// Attention over pages on Volta, decode and prefill: blocks of up to 24 query rows of one KV head,
// four warps, 128 positions a step, mma.m8n8k4 with positions (scores) and values (sums) on its
// long side, K and V straight from memory into registers, one batch ahead of its use.
//   scores   warp w owns positions 32 w..32 w + 31 of the step: S^T = K Q^T
//   weights  relative to the warp's own running maximum, a whole number, through shared memory
//   values   warp w owns 64 of the 256 values of all positions: O^T = V^T P^T; weights of each warp
//            are brought to the common maximum by an exact power of two
// Decode: a block has one segment and leaves partial sums. Prefill: a block walks over all
// positions that its rows see and stores the output.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/attention/cuda/attention_sm70_cache.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kMostRows = 24;

// Rows [row0, row0 + 8 kTiles) of the launch against positions [first, end).
struct Work {
  int index;  // of the segment
  int first;
  int end;
  int row0;
  int n_rows;  // of the launch
  int first_position;

  __device__ __forceinline__ Work(const AttentionParams& p, bool whole) {
    n_rows = p.n_tokens * p.group;
    first_position = *p.first_position;
    if (whole) {  // later rows, which see more, come first
      index = 0;
      row0 = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kMostRows;
      first = 0;
      end = first_position + (min(row0 + kMostRows, n_rows) - 1) / p.group + 1;
    } else {
      const BlockSegment segment(p);
      index = segment.index;
      row0 = static_cast<int>(blockIdx.z) * kMostRows;
      first = segment.first;
      end = segment.end;
    }
  }
  __device__ __forceinline__ int n_steps() const {
    const int n = (end - first + kSm70Step - 1) / kSm70Step;
    return mutant(Mutant::attention_segment_tail) && n > 1 ? (end - first) / kSm70Step : n;
  }
};

template <int kTiles>
struct Sm70Shared {
  static constexpr int kRows = 8 * kTiles;
  alignas(16) unsigned char queries[kRows * kSm70QueryStride];
  alignas(16) unsigned char weights[2][kRows * kSm70WeightStride];
  alignas(16) float maxima[3][kRows][kSm70Warps];  // running; a step needs those of the one before
  alignas(16) float denominators[kRows][kSm70Warps];
  alignas(16) uint16_t scales[kSm70Warps][kSm70Step];  // of V, a warp's own
  float factors[kRows];
  int newest[kRows];  // last position that a row sees; -1: no such row
};

template <int kTiles>
__device__ __forceinline__ void load_queries(const AttentionParams& p, const Work& work,
                                             Sm70Shared<kTiles>& shared, Sm70Lane l) {
  for (int row = l.warp; row < 8 * kTiles; row += kSm70Warps) {
    const int at = work.row0 + row;
    const bool inside = at < work.n_rows;
    const int64_t head = int64_t{blockIdx.x} * p.group + at % p.group;
    const uint16_t* q = p.q + (at / p.group) * p.q_stride + head * p.q_head_stride;
    uint32_t pairs[4];
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pairs[i] = inside ? *reinterpret_cast<const uint32_t*>(q + 2 * l.lane + 64 * i) : 0u;
      largest = max(largest, max(pairs[i] & 0x7fffu, pairs[i] >> 16 & 0x7fffu));
    }
    for (int d = 16; d > 0; d /= 2) largest = max(largest, __shfl_xor_sync(kAllLanes, largest, d));
    const int shift = query_shift(largest);
    const float scale = power_of_two(shift);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __half2 pair = __floats2half2_rn(__uint_as_float(pairs[i] << 16) * scale,
                                             __uint_as_float(pairs[i] & 0xffff0000u) * scale);
      *reinterpret_cast<__half2*>(shared.queries + row * kSm70QueryStride + l.lane * 4 + 128 * i) =
          pair;
    }
    const int ahead = mutant(Mutant::attention_sm70_mask) ? 1 : 0;
    if (l.lane == 0) {
      shared.factors[row] = p.scale_log2 * power_of_two(-shift);
      shared.newest[row] =
          inside ? min(work.first_position + at / p.group + ahead, work.end - 1) : -1;
    }
    if (l.lane < kSm70Warps) shared.maxima[2][row][l.lane] = kMasked;
  }
}

__device__ __forceinline__ float largest_of(const float (&four)[kSm70Warps]) {
  const float4 f = *reinterpret_cast<const float4*>(four);
  return fmaxf(fmaxf(f.x, f.y), fmaxf(f.z, f.w));
}

// Rows of a tile that a lane has scores of: elements i = 0, 1, 4, 5 and, 2 positions further, 2, 3,
// 6, 7. Slot s = 0..3 of a tile is element slot_element(s).
__device__ __forceinline__ constexpr int slot_element(int s) {
  return (s & 1) + (s & 2) * 2;
}

template <int kTiles>
struct Sm70State {
  float maximum[kTiles][4];      // running, of this warp's positions
  float denominator[kTiles][4];  // of this lane's positions, relative to it

  __device__ __forceinline__ Sm70State() {
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) {
      maximum[i / 4][i % 4] = kMasked;
      denominator[i / 4][i % 4] = 0.0f;
    }
  }

  // Scores of positions first + 32 w + near, + 2 become weights in shared memory.
  __device__ __forceinline__ void weigh(const float (&scores)[kTiles][8], int first,
                                        Sm70Shared<kTiles>& shared, int step, Sm70Lane l) {
    const int position = first + 32 * l.warp + l.near();
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        const int i = slot_element(s);
        const int row = 8 * tile + l.row_of(i);
        const float factor = shared.factors[row];
        const int newest = shared.newest[row];
        const float near = position <= newest ? scores[tile][i] * factor : kMasked;
        const float far = position + 2 <= newest ? scores[tile][i + 2] * factor : kMasked;
        float largest = fmaxf(near, far);
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
        for (int d = 4; d < 32; d *= 2) {
          largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, d));
        }
        const float next = fmaxf(maximum[tile][s], reference_of(largest));
        const __half p_near = __float2half_rn(weight_of(near, next));
        const __half p_far = __float2half_rn(weight_of(far, next));
        // [row][position of the warp][warp]
        auto* to = reinterpret_cast<__half*>(shared.weights[step % 2] + row * kSm70WeightStride) +
                   l.near() * kSm70Warps + l.warp;
        to[0] = p_near;
        to[2 * kSm70Warps] = p_far;
        denominator[tile][s] = fmaf(denominator[tile][s], exp2_whole(maximum[tile][s] - next),
                                    __half2float(p_near) + __half2float(p_far));
        maximum[tile][s] = next;
        if ((l.lane & ~2) == 0) shared.maxima[step % 3][row][l.warp] = next;
      }
    }
  }
  __device__ __forceinline__ static float weight_of(float exponent, float reference) {
    return exponent == kMasked ? 0.0f : exp2_approx(exponent - reference + kWeightShift);
  }
};

// Brings older sums to the common maximum of this step; it rarely grows.
template <int kTiles>
__device__ __forceinline__ void rescale_sums(const Sm70Shared<kTiles>& shared, int step, Sm70Lane l,
                                             float (&sums)[2][kTiles][8]) {
  float by[kTiles][4];
  bool grown = false;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const int row = 8 * tile + l.row_of(slot_element(s));
      const float next = largest_of(shared.maxima[step % 3][row]);
      const float old = largest_of(shared.maxima[(step + 2) % 3][row]);
      by[tile][s] = exp2_whole(old - next);
      grown = grown || next > old;
    }
  }
  if (__any_sync(kAllLanes, grown) == 0 || mutant(Mutant::attention_sm70_rescale)) return;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      sums[0][tile][i] *= by[tile][(i & 1) + (i & 4) / 2];
      sums[1][tile][i] *= by[tile][(i & 1) + (i & 4) / 2];
    }
  }
}

// Powers of two that bring the weights of warps 0, 1 and 2, 3 to the common maximum, for the query
// row that this lane multiplies.
template <int kTiles>
__device__ __forceinline__ void find_downs(const Sm70Shared<kTiles>& shared, int step, Sm70Lane l,
                                           uint32_t (&downs)[kTiles][2]) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const float(&maxima)[kSm70Warps] = shared.maxima[step % 3][8 * tile + l.query_row()];
    const float common = largest_of(maxima);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const __half2 pair = __floats2half2_rn(exp2_whole(maxima[2 * i] - common),
                                             exp2_whole(maxima[2 * i + 1] - common));
      downs[tile][i] = mutant(Mutant::attention_sm70_downs)
                           ? 0x3c003c00u
                           : *reinterpret_cast<const uint32_t*>(&pair);
    }
  }
}

template <typename Cache, int kTiles>
__device__ __forceinline__ void add_batch(const Sm70Shared<kTiles>& shared,
                                          const typename Cache::Values& values, int batch, int step,
                                          const uint32_t (&downs)[kTiles][2], Sm70Lane l,
                                          float (&sums)[2][kTiles][8]) {
  const typename Cache::Batch decoded(shared.scales[l.warp], batch, l);
  const unsigned char* weights = shared.weights[step % 2] + l.query_row() * kSm70WeightStride +
                                 batch * Cache::kBatchPositions * 8;
#pragma unroll
  for (int i = 0; i < Cache::kBatchPositions; i += 2) {
    uint32_t v[2][2][2];
#pragma unroll
    for (int j = 0; j < 4; ++j)
      decoded.pairs(values, i + j / 2, j % 2, v[j / 2][j % 2][0], v[j / 2][j % 2][1]);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint4 p =
          *reinterpret_cast<const uint4*>(weights + tile * 8 * kSm70WeightStride + i * 8);
      const uint32_t w[4] = {half2_mul(p.x, downs[tile][0]), half2_mul(p.y, downs[tile][1]),
                             half2_mul(p.z, downs[tile][0]), half2_mul(p.w, downs[tile][1])};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        mma_m8n8k4_f16_columns(sums[j % 2][tile], v[j / 2][j % 2][0], v[j / 2][j % 2][1],
                               w[j / 2 * 2], w[j / 2 * 2 + 1]);
      }
    }
  }
}

// Leaves denominators of the block's rows, relative to the common maximum, in
// `denominators`[row][0] and that maximum in [row][1].
template <int kTiles>
__device__ __forceinline__ void finish_denominators(Sm70Shared<kTiles>& shared,
                                                    const Sm70State<kTiles>& state, int last_step,
                                                    Sm70Lane l) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      float sum = state.denominator[tile][s];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      for (int d = 4; d < 32; d *= 2) sum += __shfl_xor_sync(kAllLanes, sum, d);
      const int row = 8 * tile + l.row_of(slot_element(s));
      if ((l.lane & ~2) == 0) shared.denominators[row][l.warp] = sum;
    }
  }
  __syncthreads();
  if (threadIdx.x < 8 * kTiles) {
    const int row = threadIdx.x;
    const float(&maxima)[kSm70Warps] = shared.maxima[last_step % 3][row];
    const float common = largest_of(maxima);
    float sum = 0.0f;
    for (int w = 0; w < kSm70Warps; ++w) {
      sum = fmaf(shared.denominators[row][w], exp2_whole(maxima[w] - common), sum);
    }
    shared.denominators[row][0] = sum;
    shared.denominators[row][1] = common;
  }
  __syncthreads();
}

template <int kTiles, bool kWhole>
__device__ __forceinline__ void store_sums(const AttentionParams& p, const Work& work,
                                           const Sm70Shared<kTiles>& shared, Sm70Lane l,
                                           const float (&sums)[2][kTiles][8]) {
  const int64_t leftover =
      (int64_t{blockIdx.x} * p.n_segments + work.index) * work.n_rows + work.row0;
  if (!kWhole && threadIdx.x < 8 * kTiles && work.row0 + threadIdx.x < work.n_rows) {
    float* to = p.statistics + (leftover + threadIdx.x) * 2;
    to[0] = shared.denominators[threadIdx.x][1];
    to[1] = shared.denominators[threadIdx.x][0];
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = 8 * tile + l.row_of(i);
      const int at = work.row0 + row;
      if (at >= work.n_rows) continue;
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const int d = l.warp * kSm70Slice + l.value_of(b, i);
        if constexpr (kWhole) {
          store_gated(p, at / p.group, blockIdx.x * p.group + at % p.group, d,
                      sums[b][tile][i] * (1.0f / shared.denominators[row][0]));
        } else {
          p.values[(leftover + row) * kWidth + d] = sums[b][tile][i];
        }
      }
    }
  }
}

// Two sets of registers in turn for the batches of K, and two for those of V: one set is on its way
// while the other is multiplied. Loads of a set share a scoreboard.
template <typename Cache, int kTiles, bool kWhole>
__global__ void __launch_bounds__(kSm70Threads, 2) attention_sm70(const AttentionParams p) {
  __shared__ Sm70Shared<kTiles> shared;
  using RowBytes = std::integral_constant<int, Cache::kRow>;
  const Sm70Lane l;
  const Work work(p, kWhole);
  if (work.first >= work.end) return;
  load_queries(p, work, shared, l);
  __syncthreads();
  const unsigned char* queries = shared.queries + l.query_row() * kSm70QueryStride;

  Sm70State<kTiles> state;
  float sums[2][kTiles][8] = {};
  const int n_steps = work.n_steps();
  Sm70Step at(p, work.first, work.end, l, RowBytes());
  typename Cache::Keys even;
  typename Cache::Keys odd;
  Cache::load_keys(at, 0, even);
  for (int step = 0; step < n_steps; ++step) {
    const int first = work.first + step * kSm70Step;
    typename Cache::Scales scales;
    scales.load(at);
    float scores[kTiles][8] = {};
#pragma unroll 1
    for (int batch = 0; batch < Cache::kKeyBatches; batch += 2) {
      Cache::load_keys(at, batch + 1, odd);
      Cache::score(even, batch, scales, queries, scores);
      if (batch + 2 < Cache::kKeyBatches) Cache::load_keys(at, batch + 2, even);
      Cache::score(odd, batch + 1, scales, queries, scores);
    }
    typename Cache::Values near;
    typename Cache::Values far;
    Cache::load_values(at, 0, near);
    state.weigh(scores, first, shared, step, l);
    scales.publish(shared.scales[l.warp], l);
    if (mutant(Mutant::attention_sm70_barrier)) {
      __syncwarp();
    } else {
      __syncthreads();
    }
    rescale_sums(shared, step, l, sums);
    uint32_t downs[kTiles][2];
    find_downs(shared, step, l, downs);
#pragma unroll 1
    for (int batch = 0; batch < Cache::kValueBatches; batch += 2) {
      Cache::load_values(at, batch + 1, far);
      add_batch<Cache>(shared, near, batch, step, downs, l, sums);
      if (batch + 2 < Cache::kValueBatches) {
        Cache::load_values(at, batch + 2, near);
      } else {
        // The last step reads its own keys again and drops them.
        at = Sm70Step(p, min(first + kSm70Step, work.end - 1), work.end, l, RowBytes());
        Cache::load_keys(at, 0, even);
      }
      add_batch<Cache>(shared, far, batch + 1, step, downs, l, sums);
    }
    __syncwarp();
  }
  finish_denominators(shared, state, n_steps - 1, l);
  store_sums<kTiles, kWhole>(p, work, shared, l, sums);
}

template <typename Cache, int kTiles>
void launch_decode(const AttentionParams& p, cudaStream_t stream) {
  arm_mutant();
  const int n_rows = p.n_tokens * p.group;
  const dim3 blocks(p.n_kv_heads, p.n_segments, (n_rows + kMostRows - 1) / kMostRows);
  attention_sm70<Cache, kTiles, false><<<blocks, kSm70Threads, 0, stream>>>(p);
  cuda_check_launch("attention_sm70 decode");
}

template <typename Cache>
void launch_tiles(const AttentionParams& p, cudaStream_t stream) {
  const int n_rows = p.n_tokens * p.group;
  if (n_rows <= 8) return launch_decode<Cache, 1>(p, stream);
  if (n_rows <= 16) return launch_decode<Cache, 2>(p, stream);
  return launch_decode<Cache, 3>(p, stream);
}

template <typename Cache>
void launch_whole(const AttentionParams& p, cudaStream_t stream) {
  arm_mutant();
  const dim3 blocks(p.n_kv_heads, (p.n_tokens * p.group + kMostRows - 1) / kMostRows);
  attention_sm70<Cache, kMostRows / 8, true><<<blocks, kSm70Threads, 0, stream>>>(p);
  cuda_check_launch("attention_sm70 prefill");
}

}  // namespace

void launch_decode_sm70(KvType type, const AttentionParams& p, cudaStream_t stream) {
  switch (type) {
    case KvType::int8:
      return launch_tiles<Sm70Int8>(p, stream);
    case KvType::bf16:
      return launch_tiles<Sm70Half<true>>(p, stream);
    default:
      return launch_tiles<Sm70Half<false>>(p, stream);
  }
}

void launch_prefill_sm70(KvType type, const AttentionParams& p, cudaStream_t stream) {
  switch (type) {
    case KvType::int8:
      return launch_whole<Sm70Int8>(p, stream);
    case KvType::bf16:
      return launch_whole<Sm70Half<true>>(p, stream);
    default:
      return launch_whole<Sm70Half<false>>(p, stream);
  }
}

}  // namespace lockstep::cuda
