// Weighted values of attention_sm80.cu and what a block leaves behind. Lane (g, t) as in
// attention_tiles.cuh.
#pragma once

#include "engine/ops/attention/cuda/attention_tiles.cuh"

namespace lockstep::cuda {

// One pair of positions, four values each: pairs of binary16 (earlier position below) times the
// pair of scales.
__device__ __forceinline__ void value_pairs(uint32_t first, uint32_t second, uint32_t scales,
                                            uint32_t (&out)[4]) {
  const uint32_t x = first ^ 0x80808080u;
  const uint32_t y = second ^ 0x80808080u;
  const uint32_t low = __byte_perm(x, y, 0x5140);
  const uint32_t high = __byte_perm(x, y, 0x7362);
  out[0] = half2_mul(half2_add(__byte_perm(low, 0x64646464u, 0x4140), 0xe480e480u), scales);
  out[1] = half2_mul(half2_add(__byte_perm(low, 0x64646464u, 0x4342), 0xe480e480u), scales);
  out[2] = half2_mul(half2_add(__byte_perm(high, 0x64646464u, 0x4140), 0xe480e480u), scales);
  out[3] = half2_mul(half2_add(__byte_perm(high, 0x64646464u, 0x4342), 0xe480e480u), scales);
}

// sums[m][tile][..]: values 64 (w mod 4) + 8 g + 2 m (and + 1 in 2, 3) of rows 8 tile + 2 t, + 1.
template <int kTiles>
__device__ __forceinline__ void add_values(const Stage& stage, const SharedMemory<kTiles>& shared,
                                           const float (&rescale)[kTiles][2],
                                           float (&sums)[4][kTiles][4]) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int g = lane / 4;
  const int quarter = warp % 4;
#pragma unroll
  for (int m = 0; m < 4; ++m) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][tile][i] *= rescale[tile][i % 2];
    }
  }
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    const int first = warp / 4 * 64 + block * 32 + lane % 4 * 8;
    const uint4 scales =
        *reinterpret_cast<const uint4*>(shared.v_scales + (quarter * kStep + first) * 2);
    uint4 weights[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      weights[tile] = *reinterpret_cast<const uint4*>(
          shared.weights + (8 * tile + g) * SharedMemory<kTiles>::kWeightStride + first * 2);
    }
#pragma unroll
    for (int four = 0; four < 2; ++four) {
      uint2 codes[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int position = first + 4 * four + e;
        const int chunk = (quarter * 4 + g / 2) ^ swizzle(position);
        codes[e] =
            *reinterpret_cast<const uint2*>(stage.v() + position * kWidth + chunk * 16 + g % 2 * 8);
      }
      const uint32_t scale0 = four == 0 ? scales.x : scales.z;
      const uint32_t scale1 = four == 0 ? scales.y : scales.w;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t a[4];
        uint32_t b[4];
        value_pairs(half == 0 ? codes[0].x : codes[0].y, half == 0 ? codes[1].x : codes[1].y,
                    scale0, a);
        value_pairs(half == 0 ? codes[2].x : codes[2].y, half == 0 ? codes[3].x : codes[3].y,
                    scale1, b);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const uint32_t p0 = four == 0 ? weights[tile].x : weights[tile].z;
          const uint32_t p1 = four == 0 ? weights[tile].y : weights[tile].w;
          mma_m16n8k16_f16(sums[2 * half][tile], a[0], a[1], b[0], b[1], p0, p1);
          mma_m16n8k16_f16(sums[2 * half + 1][tile], a[2], a[3], b[2], b[3], p0, p1);
        }
      }
    }
  }
}

// Adds the sums of the later positions of each step to those of the earlier ones and stores them.
template <int kTiles>
__device__ __forceinline__ void store_values(const AttentionParams& p, const Segment&,
                                             const SharedMemory<kTiles>& shared,
                                             const float (&sums)[4][kTiles][4]) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  copy_async_wait<0>();
  __syncthreads();
  auto* exchange = reinterpret_cast<float*>(shared.base) + (warp % 4) * (16 * kTiles * 32) + lane;
  if (warp >= 4) {
#pragma unroll
    for (int m = 0; m < 4; ++m) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) exchange[((m * kTiles + tile) * 4 + i) * 32] = sums[m][tile][i];
      }
    }
  }
  __syncthreads();
  if (warp >= 4) return;
  const int n_rows = p.n_tokens * p.group;
  float* out = p.values + (int64_t{blockIdx.y} * p.n_segments + blockIdx.x) * n_rows * kWidth +
               warp * 64 + lane / 4 * 8;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 8 * tile + 2 * (lane % 4) + i;
      if (row >= n_rows) continue;
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const float* other = exchange + ((m * kTiles + tile) * 4 + i) * 32;
        *reinterpret_cast<float2*>(out + row * kWidth + 2 * m) =
            make_float2(sums[m][tile][i] + other[0], sums[m][tile][2 + i] + other[64]);
      }
    }
  }
}

}  // namespace lockstep::cuda
