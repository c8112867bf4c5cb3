// Every kernel of the probe. Loaded from an embedded fat binary through the driver API, hence
// extern "C". No kernel waits without a bound: `limit_ns` ends every wait by the global timer.
#include <cuda_fp16.h>
#include <mma.h>
#include <cstdint>

#include "hardware-probe/kernels/workload.h"

using namespace lockstep::probe;

namespace {

__device__ uint64_t global_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ uint32_t sm_id() {
  uint32_t id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}

}  // namespace

extern "C" {

__global__ void probe_fill(uint64_t* memory, uint64_t n_words, uint64_t first, int32_t kind,
                           uint64_t seed) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n_words;
       i += stride) {
    memory[i] = pattern_word(kind, seed, first + i);
  }
}

struct ProbeError {
  uint64_t index, expected, actual, reread;
};

// count[0]: wrong words; the first `capacity` of them in `errors`, read again past the caches.
__global__ void probe_verify(const uint64_t* memory, uint64_t n_words, uint64_t first, int32_t kind,
                             uint64_t seed, unsigned long long* count, ProbeError* errors,
                             uint32_t capacity) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n_words;
       i += stride) {
    const uint64_t expected = pattern_word(kind, seed, first + i);
    const uint64_t actual = __ldcs(memory + i);
    if (actual == expected) continue;
    const unsigned long long place = atomicAdd(count, 1ull);
    if (place < capacity)
      errors[place] = {first + i, expected, actual,
                       *reinterpret_cast<const volatile uint64_t*>(memory + i)};
  }
}

// Bandwidth kernels: 16-byte accesses, neighbours in neighbouring threads. With a block for every
// piece the hardware keeps the pieces in flight close together in memory, which DRAM likes: on an
// H200 that copies 9 % faster than blocks that stay and stride, and as fast as cudaMemcpy. Fewer
// blocks take several pieces each.

// The sum is stored only if it is a value it cannot be.
__global__ void __launch_bounds__(kStreamThreads)
    probe_read(const uint4* memory, uint64_t n, uint32_t* sink) {
  constexpr uint64_t kTile = kStreamThreads * kReadUnroll;
  uint32_t sum = 0;
  for (uint64_t tile = blockIdx.x * kTile; tile < n; tile += gridDim.x * kTile) {
    uint4 words[kReadUnroll];
#pragma unroll
    for (int u = 0; u < kReadUnroll; ++u) {
      const uint64_t i = tile + u * kStreamThreads + threadIdx.x;
      words[u] = i < n ? memory[i] : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int u = 0; u < kReadUnroll; ++u) sum += words[u].x ^ words[u].y ^ words[u].z ^ words[u].w;
  }
  if (sum == 0x9e3779b9u && n == 1) sink[0] = sum;
}

__global__ void __launch_bounds__(kStreamThreads)
    probe_write(uint4* memory, uint64_t n, uint32_t value) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * kStreamThreads;
  const uint4 word = make_uint4(value, value + 1, value + 2, value + 3);
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * kStreamThreads + threadIdx.x; i < n;
       i += stride)
    __stcs(memory + i, word);
}

__global__ void __launch_bounds__(kStreamThreads)
    probe_copy(uint4* to, const uint4* from, uint64_t n) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * kStreamThreads;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * kStreamThreads + threadIdx.x; i < n;
       i += stride)
    to[i] = from[i];
}

struct ProbeSm {
  uint64_t hash, ns;
  uint32_t sm, done;
};

// One block an SM (dynamic shared memory makes a second one impossible). Hash: a commutative sum.
__global__ void __launch_bounds__(kSmThreads) probe_sm(uint64_t seed, ProbeSm* out) {
  __shared__ unsigned long long hash;
  const uint64_t start = global_ns();
  if (threadIdx.x == 0) hash = 0;
  __syncthreads();
  atomicAdd(&hash, static_cast<unsigned long long>(thread_workload(seed, threadIdx.x)));
#if __CUDA_ARCH__ >= 700
  using namespace nvcuda;
  // wmma loads and stores want 32-byte alignment.
  __shared__ __align__(32) __half a_tile[kMatrixWarps][256];
  __shared__ __align__(32) __half b_tile[kMatrixWarps][256];
  __shared__ __align__(32) float c_tile[kMatrixWarps][256];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int step = 0; step < kMatrixSteps; ++step) {
    for (int e = lane; e < 256; e += 32) {
      a_tile[warp][e] = __int2half_rn(matrix_entry(seed, warp, step, 0, e / 16, e % 16));
      b_tile[warp][e] = __int2half_rn(matrix_entry(seed, warp, step, 1, e / 16, e % 16));
    }
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b;
    wmma::load_matrix_sync(a, a_tile[warp], 16);
    wmma::load_matrix_sync(b, b_tile[warp], 16);
    wmma::mma_sync(sum, a, b, sum);
    __syncwarp();
  }
  wmma::store_matrix_sync(c_tile[warp], sum, 16, wmma::mem_row_major);
  __syncwarp();
  uint64_t mine = 0;
  for (int e = lane; e < 256; e += 32)
    mine += matrix_term(warp, e, __float2int_rn(c_tile[warp][e]));
  atomicAdd(&hash, static_cast<unsigned long long>(mine));
#endif
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = {hash, global_ns() - start, sm_id(), 1};
}

// Register-resident multiply-adds: `rounds` x 16 a thread. The coefficients come from memory so
// that nothing folds; the results are stored only if they are what they cannot be.
__global__ void __launch_bounds__(256) probe_fp32(const float* c, int rounds, float* sink) {
  float v[16];
  for (int i = 0; i < 16; ++i) v[i] = c[0] + static_cast<float>(i);
  const float m = c[1], a = c[2];
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < 16; ++i) v[i] = fmaf(v[i], m, a);
  }
  float sum = 0;
  for (int i = 0; i < 16; ++i) sum += v[i];
  if (sum == c[3]) sink[0] = sum;
}

__global__ void __launch_bounds__(256) probe_dp4a(const float* c, int rounds, float* sink) {
#if __CUDA_ARCH__ >= 610
  int v[16];
  for (int i = 0; i < 16; ++i) v[i] = __float_as_int(c[0]) + i;
  const int m = __float_as_int(c[1]), a = __float_as_int(c[2]);
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < 16; ++i) v[i] = __dp4a(v[i], m, a);
  }
  int sum = 0;
  for (int i = 0; i < 16; ++i) sum += v[i];
  if (sum == __float_as_int(c[3])) sink[0] = c[0];
#endif
}

__global__ void __launch_bounds__(256) probe_fp64(const float* c, int rounds, float* sink) {
  double v[16];
  for (int i = 0; i < 16; ++i) v[i] = c[0] + static_cast<double>(i);
  const double m = c[1], a = c[2];
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < 16; ++i) v[i] = fma(v[i], m, a);
  }
  double sum = 0;
  for (int i = 0; i < 16; ++i) sum += v[i];
  if (sum == static_cast<double>(c[3])) sink[0] = static_cast<float>(sum);
}

// `rounds` x 4 products of 16x16x16 a warp, from registers.
__global__ void __launch_bounds__(256) probe_matrix(const float* c, int rounds, float* sink) {
#if __CUDA_ARCH__ >= 700
  using namespace nvcuda;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> d[4];
  wmma::fill_fragment(a, __float2half(c[1]));
  wmma::fill_fragment(b, __float2half(c[2]));
  for (int i = 0; i < 4; ++i) wmma::fill_fragment(d[i], c[0]);
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) wmma::mma_sync(d[i], a, b, d[i]);
  }
  float sum = 0;
  for (int i = 0; i < 4; ++i) {
    for (int e = 0; e < d[i].num_elements; ++e) sum += d[i].x[e];
  }
  if (sum == c[3]) sink[0] = sum;
#else
  if (rounds < 0) sink[0] = c[0];
#endif
}

// Stores by kernel into a peer's window, and loads from a peer's source: the same copy, two
// addresses.
__global__ void probe_peer_move(uint64_t* to, const uint64_t* from, uint64_t n_words) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n_words;
       i += stride)
    to[i] = from[i];
  __threadfence_system();
}

__global__ void probe_peer_atomics(unsigned long long* counter, uint32_t per_thread) {
  for (uint32_t i = 0; i < per_thread; ++i) atomicAdd_system(counter, 1ull);
}

// One side of a ping-pong. `mine` lies in this card's memory, `theirs` in the other's. Payload
// words carry the round, and the receiver checks each. result: {status, wrong words, nanoseconds};
// status 1 = done, 2 = gave up waiting.
__global__ void probe_ping_pong(volatile uint64_t* mine, volatile uint64_t* theirs,
                                uint32_t payload_words, uint32_t rounds, int starts,
                                uint64_t limit_ns, uint64_t* result) {
  __shared__ int gave_up;
  __shared__ unsigned long long wrong;
  if (threadIdx.x == 0) gave_up = 0, wrong = 0;
  __syncthreads();
  const uint64_t begin = global_ns();
  uint64_t timed_from = begin;
  for (uint32_t round = 1; round <= rounds; ++round) {
    if (round == rounds / 4 + 1) timed_from = global_ns();
    for (int turn = 0; turn < 2; ++turn) {
      if ((turn == 0) == (starts != 0)) {
        for (uint32_t i = threadIdx.x; i < payload_words; i += blockDim.x)
          theirs[8 + i] = round + i;
        __threadfence_system();
        __syncthreads();
        if (threadIdx.x == 0) theirs[0] = round;
      } else {
        if (threadIdx.x == 0) {
          while (mine[0] < round) {
            if (global_ns() - begin > limit_ns) {
              gave_up = 1;
              break;
            }
          }
          __threadfence_system();
        }
        __syncthreads();
        if (gave_up) {
          if (threadIdx.x == 0) result[0] = 2;
          return;
        }
        for (uint32_t i = threadIdx.x; i < payload_words; i += blockDim.x) {
          if (mine[8 + i] != round + i) atomicAdd(&wrong, 1ull);
        }
        __syncthreads();
      }
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    result[1] = wrong;
    result[2] = global_ns() - timed_from;
    result[0] = 1;
  }
}

// out = own + other, elementwise; integers, so every order is exact.
__global__ void probe_sum(uint64_t* out, const uint64_t* other, uint64_t n_words) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n_words;
       i += stride)
    out[i] += other[i];
}

// Words that differ from the sum of the patterns of `n_seeds` cards, seeds seed, seed + 1, ...
__global__ void probe_verify_sum(const uint64_t* memory, uint64_t n_words, uint64_t seed,
                                 uint32_t n_seeds, unsigned long long* count) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n_words;
       i += stride) {
    uint64_t expected = 0;
    for (uint32_t k = 0; k < n_seeds; ++k) expected += pattern_word(kPatternRandom, seed + k, i);
    if (memory[i] != expected) atomicAdd(count, 1ull);
  }
}

}  // extern "C"
