// Prefill attention, sm_90a. A block has 128 query rows (token, head of the group) of one KV head
// and walks over all pages that they see. Two warp groups have 64 rows each:
//   scores   S = Q K^T, 64 x 64, both from shared memory
//   weights  relative to the row's running maximum, a whole number, in registers
//   values   O += P V, 64 x 256, weights from registers
// Scores of the next page are formed before values of this one are added, so that weights are
// worked out while the matrix unit adds. A third warp group fills the ring of tiles. Rows never
// meet, so a row's bits depend on nothing beside it.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/attention/cuda/prefill_sm90_cache.cuh"
#include "engine/ops/attention/cuda/tensor_map.h"

namespace lockstep::cuda {
namespace {

constexpr int kGroups = 2;
constexpr int kGroupRows = 64;
constexpr int kWarpRows = 16;
constexpr int kRows = kGroups * kGroupRows;
constexpr int kThreads = (kGroups + 1) * 128;
constexpr int kQueryBytes = kGroupRows * kWidth * 2;  // of a group
template <typename Cache>
constexpr int kSharedBytes =
    kGroups* kQueryBytes + Cache::Ring::kBytes + Cache::kRawBytes + 1024;  // to begin at x 1024

// Numbered barriers: queries of each group, zeros in the last page.
constexpr int kQueries = 1;
constexpr int kZeros = 3;

// Rows of this block; later ones, which see more, come first.
struct BlockRows {
  int first;  // row of the launch: token * group + head of the group
  int end;    // of the launch
  int first_position;
  int group;

  __device__ __forceinline__ explicit BlockRows(const AttentionParams& p) {
    first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kRows;
    end = p.n_tokens * p.group;
    first_position = *p.first_position;
    group = p.group;
  }
  // Last position that a row of the block sees; -1: no such row.
  __device__ __forceinline__ int newest(int row) const {
    const int ahead = mutant(Mutant::attention_sm90_mask) ? 1 : 0;
    return first + row < end ? first_position + (first + row) / group + ahead : -1;
  }
  __device__ __forceinline__ int n_pages() const {
    return (first_position + (min(first + kRows, end) - 1) / group) / kPage + 1;
  }
};

// Two rows of this lane, 8 apart.
struct RowPair {
  float factor[2];
  float maximum[2] = {kMasked, kMasked};  // running
  float denominator[2] = {};              // of this lane's positions, relative to it
  int newest[2];
  int seen_by_all;  // last position that every row of the warp sees
};

// Where numbers 2 lane + 64 k, + 1 of a row lie in the tile of a group, for k = 0, in bytes.
__device__ __forceinline__ int lane_place(int row) {
  const int lane = threadIdx.x % 32;
  return row * 128 + (lane / 4 ^ row % 8) * 16 + lane % 4 * 4;
}

// One row of Q to shared memory, for binary16 times a power of two; what its scores are
// multiplied by.
template <typename N>
__device__ __forceinline__ float store_query(float scale_log2, uint32_t (&words)[4],
                                             unsigned char* to) {
  float factor = scale_log2;
  if constexpr (!N::kBf16) {
    uint32_t largest = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      largest = max(largest, max(words[k] & 0x7fffu, words[k] >> 16 & 0x7fffu));
    }
    for (int d = 16; d > 0; d /= 2) largest = max(largest, __shfl_xor_sync(kAllLanes, largest, d));
    const int shift = query_shift(largest);
    const float scale = power_of_two(shift);
    factor *= power_of_two(-shift);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      words[k] = N::pack(Bf16Numbers::low(words[k]) * scale, Bf16Numbers::high(words[k]) * scale);
    }
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) *reinterpret_cast<uint32_t*>(to + k * kPanelBytes) = words[k];
  return factor;
}

// Brings the warp's 16 rows of Q to shared memory.
template <typename N>
__device__ __forceinline__ void load_queries(const AttentionParams& p, const BlockRows& rows,
                                             unsigned char* queries, RowPair& pair) {
  const int lane = threadIdx.x % 32;
  const int warp_row = threadIdx.x / 32 * kWarpRows;
  uint32_t words[kWarpRows][4];
#pragma unroll
  for (int i = 0; i < kWarpRows; ++i) {
    const int at = rows.first + warp_row + i;
    const int64_t head = int64_t{blockIdx.x} * p.group + at % p.group;
    const uint16_t* q = p.q + (at / p.group) * p.q_stride + head * p.q_head_stride + 2 * lane;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      words[i][k] = at < rows.end ? *reinterpret_cast<const uint32_t*>(q + 64 * k) : 0u;
    }
  }
#pragma unroll
  for (int i = 0; i < kWarpRows; ++i) {
    const float factor =
        store_query<N>(p.scale_log2, words[i], queries + lane_place(warp_row % kGroupRows + i));
    if (i == lane / 4) pair.factor[0] = factor;
    if (i == lane / 4 + 8) pair.factor[1] = factor;
  }
  pair.newest[0] = rows.newest(warp_row + lane / 4);
  pair.newest[1] = rows.newest(warp_row + lane / 4 + 8);
  pair.seen_by_all = rows.newest(warp_row + 15) < 0 ? -1 : rows.newest(warp_row);
}

template <bool kBf16>
__device__ __forceinline__ void start_scores(uint64_t queries, uint64_t keys, float (&scores)[32]) {
#pragma unroll
  for (int k = 0; k < kWidth / 16; ++k) {
    const uint32_t at = (k / 4 * kPanelBytes + k % 4 * 32) / 16;
    wgmma_shared_k16<kBf16>(scores, queries + at, keys + at, k > 0);
  }
  wgmma_commit();
}

template <bool kBf16>
__device__ __forceinline__ void start_values(const uint32_t (&weights)[16], uint64_t values,
                                             float (&sums)[128]) {
#pragma unroll
  for (int k = 0; k < kPage / 16; ++k) {
    wgmma_rows_k16<kBf16>(sums, weights[4 * k], weights[4 * k + 1], weights[4 * k + 2],
                          weights[4 * k + 3], values + k * (16 * 128 / 16));
  }
  wgmma_commit();
}

__device__ __forceinline__ void hold_weights(uint32_t (&weights)[16]) {
#pragma unroll
  for (uint32_t& pair : weights) asm volatile("" : "+r"(pair)::"memory");
}

// Scores of a page become weights; `down` is what older sums of both rows are multiplied by.
// Returns whether that is less than 1 for a row of the warp.
template <typename N>
__device__ __forceinline__ bool weigh(float (&scores)[32], int page, RowPair& rows,
                                      uint32_t (&weights)[16], float (&down)[2]) {
  const int last = page * kPage + kPage - 1;
  const bool border = last > rows.seen_by_all;
  bool grown = false;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (border) {
      const int columns = rows.newest[h] - page * kPage - static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        if (8 * n > columns) scores[4 * n + 2 * h] = -INFINITY;
        if (8 * n + 1 > columns) scores[4 * n + 2 * h + 1] = -INFINITY;
      }
    }
    float largest = fmaxf(scores[2 * h], scores[2 * h + 1]);
#pragma unroll
    for (int n = 1; n < 8; ++n) {
      largest = fmaxf(largest, fmaxf(scores[4 * n + 2 * h], scores[4 * n + 2 * h + 1]));
    }
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    const float next = fmaxf(rows.maximum[h], reference_of(largest * rows.factor[h]));
    const float shift = kWeightShift - next;
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float low = exp2_approx(fmaf(scores[4 * n + 2 * h], rows.factor[h], shift));
      const float high = exp2_approx(fmaf(scores[4 * n + 2 * h + 1], rows.factor[h], shift));
      const uint32_t pair = N::pack(low, high);
      sum += N::low(pair) + N::high(pair);
      weights[n / 2 * 4 + n % 2 * 2 + h] = pair;
    }
    down[h] = exp2_whole(rows.maximum[h] - next);
    grown = grown || next > rows.maximum[h];
    rows.denominator[h] = fmaf(rows.denominator[h], down[h], sum);
    rows.maximum[h] = next;
  }
  return __any_sync(kAllLanes, grown) != 0;
}

__device__ __forceinline__ void rescale_sums(const float (&down)[2], float (&sums)[128]) {
  if (mutant(Mutant::attention_sm90_rescale)) return;
#pragma unroll
  for (int i = 0; i < 128; ++i) sums[i] *= down[i % 4 / 2];
}

// A finished value times the sigmoid of its gate.
__device__ __forceinline__ uint32_t gated(float value, float gate) {
  float factor;
  asm("rcp.approx.f32 %0, %1;" : "=f"(factor) : "f"(1.0f + expf(-gate)));
  return bf16_bits(value * factor);
}

// Finished sums, rounded, to the group's tile of rows.
__device__ __forceinline__ void finish_sums(const RowPair& pair, const float (&sums)[128],
                                            unsigned char* tile) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = pair.denominator[h];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    const float inverse = 1.0f / sum;
    const int row = threadIdx.x % 128 / 32 * kWarpRows + lane / 4 + 8 * h;
    unsigned char* to = tile + row * 128 + lane % 4 * 4;
#pragma unroll
    for (int n = 0; n < 32; ++n) {
      *reinterpret_cast<uint32_t*>(to + n / 8 * kPanelBytes + (n % 8 ^ row % 8) * 16) =
          Bf16Numbers::pack(sums[4 * n + 2 * h] * inverse, sums[4 * n + 2 * h + 1] * inverse);
    }
  }
}

// The warp's rows of the tile with their gates to the output, whole rows at once.
__device__ __forceinline__ void store_rows(const AttentionParams& p, const BlockRows& rows,
                                           const unsigned char* tile) {
  constexpr int kAtOnce = 8;
  const int warp_row = threadIdx.x / 32 * kWarpRows;
  for (int first = warp_row; first < warp_row + kWarpRows; first += kAtOnce) {
    uint32_t gates[kAtOnce][4];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = rows.first + first + i;
      const int64_t head = int64_t{blockIdx.x} * p.group + at % p.group;
      const uint16_t* gate = p.gate + (at / p.group) * p.gate_stride + head * p.gate_head_stride;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const bool there = p.gate != nullptr && at < rows.end;
        gates[i][k] =
            there ? reinterpret_cast<const uint32_t*>(gate)[threadIdx.x % 32 + 32 * k] : 0u;
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = rows.first + first + i;
      if (at >= rows.end) return;
      const int64_t head = int64_t{blockIdx.x} * p.group + at % p.group;
      uint16_t* out = p.out + (at / p.group) * p.out_stride + head * kWidth;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const unsigned char* from = tile + lane_place((first + i) % kGroupRows) + k * kPanelBytes;
        const auto pair = *reinterpret_cast<const uint32_t*>(from);
        using Pair = Bf16Numbers;
        const uint32_t gated_pair = gated(Pair::low(pair), Pair::low(gates[i][k])) |
                                    gated(Pair::high(pair), Pair::high(gates[i][k])) << 16;
        reinterpret_cast<uint32_t*>(out)[threadIdx.x % 32 + 32 * k] =
            p.gate == nullptr ? pair : gated_pair;
      }
    }
  }
}

// One of the two warp groups that multiply.
template <typename Cache>
struct Multiplier {
  using N = typename Cache::Numbers;
  using Ring = typename Cache::Ring;
  using RingPlace = typename Ring::RingPlace;
  const Ring& ring;
  int group = threadIdx.x / 128;
  RingPlace at;

  __device__ __forceinline__ explicit Multiplier(const Ring& r) : ring(r) {}

  __device__ __forceinline__ void release(RingPlace tile) const {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(ring.free(tile));
  }
  // The next tile, once it is there.
  __device__ __forceinline__ RingPlace take() {
    const RingPlace tile = at;
    ring.wait_until_full(tile);
    if (mutant(Mutant::attention_sm90_release)) {
      release(tile);
      __nanosleep(5000);
    }
    at.advance();
    return tile;
  }
  __device__ __forceinline__ void give_back(RingPlace tile) const {
    if (!mutant(Mutant::attention_sm90_release)) release(tile);
  }
  __device__ __forceinline__ uint64_t keys(RingPlace tile) const {
    return wgmma_descriptor(ring.tile(tile));
  }
  __device__ __forceinline__ uint64_t values(RingPlace tile) const {
    return wgmma_descriptor_of_rows(ring.tile(tile), kPanelBytes);
  }

  // Values of positions that are not there become zeros: stale bytes may be NaN.
  __device__ __forceinline__ void clear_stale(unsigned char* tile, int n_valid) const {
    if (!Cache::kCopied || n_valid >= kPage || mutant(Mutant::attention_stale_values)) return;
    const int vector = threadIdx.x % 32;
    for (int row = n_valid + threadIdx.x / 32; row < kPage; row += kReaders) {
      unsigned char* to = tile + vector / 8 * kPanelBytes + row * 128 + vector % 8 * 16;
      *reinterpret_cast<uint4*>(to) = uint4{0, 0, 0, 0};
    }
    fence_for_wgmma();
    meet<kGroups * 128>(kZeros);
  }

  __device__ __forceinline__ void run(const AttentionParams& p, const BlockRows& rows,
                                      unsigned char* shared, int n_pages) {
    RowPair pair;
    unsigned char* queries = shared + group * kQueryBytes;
    load_queries<N>(p, rows, queries, pair);
    fence_for_wgmma();
    meet<128>(kQueries + group);
    const uint64_t q = wgmma_descriptor(shared_address(queries));

    float sums[128];
#pragma unroll
    for (float& sum : sums) sum = 0.0f;
    float scores[32];
    uint32_t weights[16];
    float down[2];
    uint32_t zero = 0;  // that the compiler does not know
    asm volatile("" : "+r"(zero));
    const RingPlace first = take();
    hold_sums(scores);
    wgmma_fence();
    start_scores<N::kBf16>(q, keys(first), scores);
    wgmma_wait<0>();
    hold_sums(scores);
    give_back(first);
    weigh<N>(scores, 0, pair, weights, down);
    for (int page = 1; page < n_pages; ++page) {
      const RingPlace key_tile = take();
      hold_sums(scores);
      hold_sums(sums);
      hold_weights(weights);
      wgmma_fence();
      start_scores<N::kBf16>(q, keys(key_tile), scores);
      const RingPlace value_tile = take();
      start_values<N::kBf16>(weights, values(value_tile), sums);
      wgmma_wait<1>();
      hold_sums(scores);
      give_back(key_tile);
      uint32_t next_weights[16];
      const bool grown = weigh<N>(scores, page, pair, next_weights, down);
      wgmma_wait<0>();
      hold_sums(sums);
      give_back(value_tile);
      if (grown) rescale_sums(down, sums);
#pragma unroll
      for (int i = 0; i < 16; ++i) weights[i] = next_weights[i] | zero;
    }
    const RingPlace last = take();
    const int n_valid = rows.first_position + p.n_tokens - (n_pages - 1) * kPage;
    clear_stale(shared + (ring.tile(last) - shared_address(shared)), n_valid);
    hold_sums(sums);
    wgmma_fence();
    start_values<N::kBf16>(weights, values(last), sums);
    wgmma_wait<0>();
    hold_sums(sums);
    meet<128>(kQueries + group);  // nobody reads queries any more
    finish_sums(pair, sums, queries);
    __syncwarp();
    store_rows(p, rows, queries);
  }
};

// A launch gives every thread this many; a group that asks for more than the others left waits for
// ever.
constexpr int kRegisters = 65536 / kThreads / 8 * 8;

template <typename Cache>
__global__ void __launch_bounds__(kThreads, 1)
    attention_prefill_sm90(const AttentionParams p, const __grid_constant__ CUtensorMap map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  static_assert(kGroups * Cache::kReaderRegisters + Cache::kProducerRegisters <=
                (kGroups + 1) * kRegisters);
  extern __shared__ unsigned char raw[];
  unsigned char* shared = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const typename Cache::Ring ring(shared_address(shared) + kGroups * kQueryBytes);
  const BlockRows rows(p);
  const int n_pages = rows.n_pages();
  if (threadIdx.x == 0) ring.init(Cache::kWriters);
  __syncthreads();
  if (threadIdx.x >= kGroups * 128) {
    give_registers_back<Cache::kProducerRegisters>();
    Cache::fill(p, map, ring, n_pages, rows.first_position + p.n_tokens);
  } else {
    take_registers<Cache::kReaderRegisters>();
    Multiplier<Cache>(ring).run(p, rows, shared, n_pages);
  }
#endif
}

template <typename Cache>
void launch(const AttentionParams& p, cudaStream_t stream) {
  arm_mutant();
  const auto kernel = attention_prefill_sm90<Cache>;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  kSharedBytes<Cache>),
             "attention: dynamic shared memory");
  const CUtensorMap map =
      Cache::kCopied ? map_of_pages(p.pool, Cache::Numbers::kBf16) : CUtensorMap{};
  const dim3 blocks(p.n_kv_heads, (p.n_tokens * p.group + kRows - 1) / kRows);
  kernel<<<blocks, kThreads, kSharedBytes<Cache>, stream>>>(p, map);
  cuda_check_launch("attention_prefill_sm90");
}

}  // namespace

void launch_prefill_sm90(KvType type, const AttentionParams& p, cudaStream_t stream) {
  switch (type) {
    case KvType::int8:
      return launch<PrefillSm90Int8>(p, stream);
    case KvType::bf16:
      return launch<PrefillSm90Half<Bf16Numbers>>(p, stream);
    default:
      return launch<PrefillSm90Half<Fp16Numbers>>(p, stream);
  }
}

}  // namespace lockstep::cuda
