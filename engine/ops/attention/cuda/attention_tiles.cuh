// Shared memory, copies, scores and weights of attention_sm80.cu. Lane (g, t) = (lane / 4, lane mod
// 4).
#pragma once

#include "engine/ops/attention/cuda/attention_params.h"
#include "engine/ops/common/cuda/copy_async.cuh"
#include "engine/ops/common/cuda/mma.cuh"
#include "engine/ops/common/cuda/mutant.cuh"

namespace lockstep::cuda {

inline constexpr int kThreads = 256;
inline constexpr int kWarps = 8;
inline constexpr int kStep = 128;
inline constexpr int kWidth = 256;
inline constexpr int kPage = 64;
inline constexpr float kMasked = -1e30f;
// P carries 2^14: weights down to 2^-28 of the largest stay normal numbers of binary16. It drops
// out, because the denominator carries it too.
inline constexpr float kWeightShift = 14.0f;

template <int kTiles>
inline constexpr int kStages = kTiles <= 3 ? 3 : 2;

// One step of the ring: codes [position][256 B], 16-byte chunks swizzled (see swizzle), and scales
// [position][4] binary16.
struct Stage {
  static constexpr int kCodes = kStep * kWidth;
  static constexpr int kScales = kStep * 8;
  static constexpr int kBytes = 2 * (kCodes + kScales);
  unsigned char* k;

  __device__ __forceinline__ unsigned char* v() const { return k + kCodes; }
  __device__ __forceinline__ unsigned char* k_scales() const { return k + 2 * kCodes; }
  __device__ __forceinline__ unsigned char* v_scales() const { return k + 2 * kCodes + kScales; }
};

// Chunk numbers are mixed with the position so that neither the loads of K (eight positions, four
// chunks) nor those of V (positions 8 apart) meet in one bank.
__device__ __forceinline__ int swizzle(int position) {
  return ((position & 1) << 2) ^ (((position >> 3) & 3) << 1);
}

template <int kTiles>
struct SharedMemory {
  static constexpr int kQueryStride = 576;  // bytes of a query row: 256 values and a shift of banks
  static constexpr int kWeightStride = 272;  // bytes of a row of P
  static constexpr int kRows = 8 * kTiles;
  static constexpr int kQueries = kStages<kTiles> * Stage::kBytes;
  static constexpr int kWeights = kQueries + kRows * kQueryStride;
  static constexpr int kMaxima = kWeights + kRows * kWeightStride;
  static constexpr int kFactors = kMaxima + kRows * kWarps * 4;
  static constexpr int kVScales = kFactors + kRows * 4;
  static constexpr int kPages = kVScales + 4 * kStep * 2;
  static constexpr int kBytes = kPages;  // and four bytes a page of the segment

  unsigned char* base;
  unsigned char* queries;
  unsigned char* weights;
  float* maxima;            // [row][warp]
  float* factors;           // [row]: scale * log2(e) over the power of two of its query
  unsigned char* v_scales;  // [64 values][position] binary16
  uint32_t* pages;

  __device__ __forceinline__ explicit SharedMemory(unsigned char* memory)
      : base(memory),
        queries(memory + kQueries),
        weights(memory + kWeights),
        maxima(reinterpret_cast<float*>(memory + kMaxima)),
        factors(reinterpret_cast<float*>(memory + kFactors)),
        v_scales(memory + kVScales),
        pages(reinterpret_cast<uint32_t*>(memory + kPages)) {}
  __device__ __forceinline__ Stage stage(int index) const { return {base + index * Stage::kBytes}; }
};

// Positions [first, end) of the cache that this block sees; `last` is the newest one of all.
struct Segment {
  int first;
  int end;
  int last;

  __device__ __forceinline__ explicit Segment(const AttentionParams& p) {
    last = *p.first_position + p.n_tokens - 1;
    first = blockIdx.x * p.segment;
    end = min(first + p.segment, last + 1);
  }
  __device__ __forceinline__ bool empty() const { return first > last; }
  __device__ __forceinline__ int n_steps() const {
    const int n = (end - first + kStep - 1) / kStep;
    return mutant(Mutant::attention_segment_tail) && n > 1 ? (end - first) / kStep : n;
  }
};

template <int kTiles>
__device__ __forceinline__ void load_page_table(const AttentionParams& p, const Segment& segment,
                                                const SharedMemory<kTiles>& shared) {
  const int n_pages = (segment.end - segment.first + kPage - 1) / kPage;
  for (int i = threadIdx.x; i < n_pages; i += kThreads) {
    const int skipped = mutant(Mutant::attention_page) && i == 1 ? 1 : 0;
    shared.pages[i] = p.page_table[segment.first / kPage + i - skipped];
  }
}

// Query rows as binary16, each times the power of two that brings its largest magnitude to
// [2^14, 2^15). Row token * group + head; rows that are not there are zeros. Order within 64
// values: chunk i of lane t at 64 i + 16 t bytes holds values 16 t + 8 i..+7.
template <int kTiles>
__device__ __forceinline__ void load_queries(const AttentionParams& p,
                                             const SharedMemory<kTiles>& shared) {
  const int lane = threadIdx.x % 32;
  for (int row = threadIdx.x / 32; row < 8 * kTiles; row += kWarps) {
    const bool inside = row < p.n_tokens * p.group;
    const int64_t head = int64_t{blockIdx.y} * p.group + row % p.group;
    const uint16_t* q = p.q + (row / p.group) * p.q_stride + head * p.q_head_stride;
    uint16_t bits[8];
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      bits[i] = inside ? q[lane + 32 * i] : uint16_t{0};
      largest = max(largest, bits[i] & 0x7fffu);
    }
    for (int d = 16; d > 0; d /= 2) {
      largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, d));
    }
    const int exponent = static_cast<int>(largest >> 7) - 127;
    const int shift = largest == 0 || exponent == 128 ? 0 : min(14 - exponent, 126);
    const float scale = __uint_as_float(static_cast<uint32_t>(shift + 127) << 23);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int d = lane + 32 * i;
      const int place = d / 64 * 128 + d % 16 / 8 * 64 + d % 64 / 16 * 16 + d % 8 * 2;
      const float value = __uint_as_float(static_cast<uint32_t>(bits[i]) << 16) * scale;
      *reinterpret_cast<__half*>(shared.queries + row * SharedMemory<kTiles>::kQueryStride +
                                 place) = __float2half_rn(value);
    }
    if (lane == 0) {
      shared.factors[row] =
          p.scale_log2 * __uint_as_float(static_cast<uint32_t>(127 - shift) << 23);
    }
  }
}

// Starts the copies of a step (nothing beyond the last one; the group is committed anyway, so that
// waiting counts groups). Positions beyond the newest read that one: stale bytes may be NaN.
template <int kTiles>
__device__ __forceinline__ void fetch_step(const AttentionParams& p, const Segment& segment,
                                           const SharedMemory<kTiles>& shared, int step) {
  const int64_t vectors = int64_t{p.n_kv_heads} * kPage;
  if (step * kStep < segment.end - segment.first && !mutant(Mutant::ablate_loads)) {
    const Stage stage = shared.stage(step % kStages<kTiles>);
    const int chunk = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < kStep / 16; ++i) {
      const int in_step = threadIdx.x / 16 + 16 * i;
      const int position = min(segment.first + step * kStep + in_step, segment.end - 1);
      const int64_t page = shared.pages[(position - segment.first) / kPage];
      const std::byte* from = p.pool + page * p.page_bytes +
                              (int64_t{blockIdx.y} * kPage + position % kPage) * kWidth +
                              chunk * 16;
      const int place = in_step * kWidth + ((chunk ^ swizzle(in_step)) * 16);
      copy_async_16(stage.k + place, from);
      copy_async_16(stage.v() + place, from + vectors * kWidth);
    }
    const int in_step = threadIdx.x % kStep;
    const int position = min(segment.first + step * kStep + in_step, segment.end - 1);
    const int64_t page = shared.pages[(position - segment.first) / kPage];
    const std::byte* from = p.pool + page * p.page_bytes + 2 * vectors * kWidth +
                            (int64_t{blockIdx.y} * kPage + position % kPage) * 8;
    if (threadIdx.x < kStep) {
      copy_async_8(stage.k_scales() + in_step * 8, from);
    } else {
      copy_async_8(stage.v_scales() + in_step * 8, from + vectors * 8);
    }
  }
  copy_async_commit();
}

template <int kTiles>
__device__ __forceinline__ void wait_for_step() {
  copy_async_wait<kStages<kTiles> - 2>();
}

// Four signed codes as two pairs of binary16, exact: 1024 + (code + 128) - 1152.
__device__ __forceinline__ void int8_values(uint32_t word, uint32_t& low, uint32_t& high) {
  const uint32_t biased = word ^ 0x80808080u;
  low = half2_add(__byte_perm(biased, 0x64646464u, 0x4140), 0xe480e480u);
  high = half2_add(__byte_perm(biased, 0x64646464u, 0x4342), 0xe480e480u);
}

// Scores of this warp's 16 positions, without factors of rows: [tile][position g: rows 2 t, 2 t +
// 1; position g + 8: the same].
template <int kTiles>
__device__ __forceinline__ void score_step(const Stage& stage, const SharedMemory<kTiles>& shared,
                                           float (&scores)[kTiles][4]) {
  const int lane = threadIdx.x % 32;
  const int t = lane % 4;
  const int g = threadIdx.x / 32 * 16 + lane / 4;
  const unsigned char* queries =
      shared.queries + (lane / 4) * SharedMemory<kTiles>::kQueryStride + t * 16;
  const uint2 g_scales = *reinterpret_cast<const uint2*>(stage.k_scales() + g * 8);
  const uint2 h_scales = *reinterpret_cast<const uint2*>(stage.k_scales() + (g + 8) * 8);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    scores[tile][0] = scores[tile][1] = scores[tile][2] = scores[tile][3] = 0.0f;
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const uint4 gk =
        *reinterpret_cast<const uint4*>(stage.k + g * kWidth + ((4 * c + t) ^ swizzle(g)) * 16);
    const uint4 hk = *reinterpret_cast<const uint4*>(stage.k + (g + 8) * kWidth +
                                                     ((4 * c + t) ^ swizzle(g + 8)) * 16);
    float part[kTiles][4] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t a[8];
      int8_values(i == 0 ? gk.x : gk.z, a[0], a[2]);
      int8_values(i == 0 ? hk.x : hk.z, a[1], a[3]);
      int8_values(i == 0 ? gk.y : gk.w, a[4], a[6]);
      int8_values(i == 0 ? hk.y : hk.w, a[5], a[7]);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4 q = *reinterpret_cast<const uint4*>(
            queries + tile * 8 * SharedMemory<kTiles>::kQueryStride + c * 128 + i * 64);
        mma_m16n8k16_f16(part[tile], a[0], a[1], a[2], a[3], q.x, q.y);
        mma_m16n8k16_f16(part[tile], a[4], a[5], a[6], a[7], q.z, q.w);
      }
    }
    const int scale = mutant(Mutant::attention_k_scale) ? c ^ 1 : c;
    const uint32_t g_pair = scale < 2 ? g_scales.x : g_scales.y;
    const uint32_t h_pair = scale < 2 ? h_scales.x : h_scales.y;
    const float g_scale =
        __half2float(__ushort_as_half(static_cast<uint16_t>(g_pair >> (scale % 2 * 16))));
    const float h_scale =
        __half2float(__ushort_as_half(static_cast<uint16_t>(h_pair >> (scale % 2 * 16))));
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      scores[tile][0] = fmaf(part[tile][0], g_scale, scores[tile][0]);
      scores[tile][1] = fmaf(part[tile][1], g_scale, scores[tile][1]);
      scores[tile][2] = fmaf(part[tile][2], h_scale, scores[tile][2]);
      scores[tile][3] = fmaf(part[tile][3], h_scale, scores[tile][3]);
    }
  }
}

// V scales of the step as [64 values][position], so that a lane finds those of eight positions side
// by side.
__device__ __forceinline__ void transpose_v_scales(const Stage& stage, unsigned char* to) {
  if (threadIdx.x >= kStep) return;
  const int position = threadIdx.x;
  const uint2 scales = *reinterpret_cast<const uint2*>(stage.v_scales() + position * 8);
  auto* out = reinterpret_cast<uint16_t*>(to);
  const int x = mutant(Mutant::attention_v_scale) ? 1 : 0;
  out[(0 ^ x) * kStep + position] = static_cast<uint16_t>(scales.x);
  out[(1 ^ x) * kStep + position] = static_cast<uint16_t>(scales.x >> 16);
  out[(2 ^ x) * kStep + position] = static_cast<uint16_t>(scales.y);
  out[(3 ^ x) * kStep + position] = static_cast<uint16_t>(scales.y >> 16);
}

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Running maximum and denominator of the rows 8 tile + 2 t and + 1, as this lane sees them.
template <int kTiles>
struct RowState {
  float maximum[kTiles][2];
  float denominator[kTiles][2];  // of this lane's positions
  float factor[kTiles][2];
  int newest[kTiles][2];  // last position the row sees; -1: no such row

  __device__ __forceinline__ RowState(const AttentionParams& p, const Segment& segment,
                                      const SharedMemory<kTiles>& shared) {
    const int first_position = segment.last + 1 - p.n_tokens;
    const int ahead = mutant(Mutant::attention_mask) ? 1 : 0;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = 8 * tile + 2 * (threadIdx.x % 4) + i;
        maximum[tile][i] = kMasked;
        denominator[tile][i] = 0.0f;
        factor[tile][i] = shared.factors[row];
        newest[tile][i] = row < p.n_tokens * p.group ? first_position + row / p.group + ahead : -1;
      }
    }
  }

  __device__ __forceinline__ static int own_position(int step_first) {
    return step_first + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  }

  // Scores become exponents in base 2; masked ones kMasked. The warp's maximum of each row goes to
  // shared memory.
  __device__ __forceinline__ void publish_maximum(float (&scores)[kTiles][4], int step_first,
                                                  const SharedMemory<kTiles>& shared) {
    const int position = own_position(step_first);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& near = scores[tile][i];
        float& far = scores[tile][2 + i];
        near = position <= newest[tile][i] ? near * factor[tile][i] : kMasked;
        far = position + 8 <= newest[tile][i] ? far * factor[tile][i] : kMasked;
        float largest = fmaxf(near, far);
        for (int d = 4; d < 32; d *= 2) {
          largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, d));
        }
        if (threadIdx.x % 32 < 4) {
          const int row = 8 * tile + 2 * (threadIdx.x % 4) + i;
          shared.maxima[row * kWarps + threadIdx.x / 32] = largest;
        }
      }
    }
  }

  // Weights of the step to shared memory; `rescale` is what older sums are multiplied by.
  __device__ __forceinline__ void weigh(const float (&scores)[kTiles][4], int step_first,
                                        const SharedMemory<kTiles>& shared,
                                        float (&rescale)[kTiles][2]) {
    const int column = own_position(step_first) - step_first;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = 8 * tile + 2 * (threadIdx.x % 4) + i;
        const auto* maxima = reinterpret_cast<const float4*>(shared.maxima + row * kWarps);
        const float4 a = maxima[0];
        const float4 b = maxima[1];
        const float step_maximum =
            fmaxf(fmaxf(fmaxf(a.x, a.y), fmaxf(a.z, a.w)), fmaxf(fmaxf(b.x, b.y), fmaxf(b.z, b.w)));
        const float next = fmaxf(maximum[tile][i], step_maximum);
        rescale[tile][i] = exp2_approx(maximum[tile][i] - next);
        if (mutant(Mutant::attention_stale_maximum)) rescale[tile][i] = 1.0f;
        maximum[tile][i] = next;
        auto* weights =
            reinterpret_cast<__half*>(shared.weights + row * SharedMemory<kTiles>::kWeightStride);
        const __half near = weight_of(scores[tile][i], next);
        const __half far = weight_of(scores[tile][2 + i], next);
        weights[column] = near;
        weights[column + 8] = far;
        denominator[tile][i] =
            fmaf(denominator[tile][i], rescale[tile][i], __half2float(near) + __half2float(far));
      }
    }
  }
  __device__ __forceinline__ static __half weight_of(float score, float largest) {
    return __float2half_rn(score == kMasked ? 0.0f : exp2_approx(score - largest + kWeightShift));
  }

  // Denominators: lanes of a column by shuffles, then warps in order.
  __device__ __forceinline__ void store_denominators(const AttentionParams& p,
                                                     const Segment& segment,
                                                     const SharedMemory<kTiles>& shared) {
    __syncthreads();
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float sum = denominator[tile][i];
        for (int d = 4; d < 32; d *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        const int row = 8 * tile + 2 * (threadIdx.x % 4) + i;
        if (threadIdx.x % 32 < 4) shared.maxima[row * kWarps + threadIdx.x / 32] = sum;
        if (threadIdx.x < 4) shared.factors[row] = maximum[tile][i];
      }
    }
    __syncthreads();
    const int row = threadIdx.x;
    if (row >= p.n_tokens * p.group) return;
    float sum = 0.0f;
    for (int w = 0; w < kWarps; ++w) sum += shared.maxima[row * kWarps + w];
    float* out =
        p.statistics +
        ((int64_t{blockIdx.y} * p.n_segments + blockIdx.x) * (p.n_tokens * p.group) + row) * 2;
    out[0] = shared.factors[row];
    out[1] = sum;
  }
};

}  // namespace lockstep::cuda
