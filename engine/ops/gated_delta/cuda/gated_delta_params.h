// What the host passes to the kernels of gated_delta.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/ops/common/cuda/gdn_round.h"

#ifdef __CUDACC__
#define LOCKSTEP_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define LOCKSTEP_HOST_DEVICE
#endif

namespace lockstep::cuda {

// Shared memory of a block of chunk_scan: rows of q and k, state, right side; sm80: two stages.
inline constexpr int kGdnScanBytes = 2 * 64 * 132 * 4 + 128 * 36 * 4 + 64 * 36 * 4;
inline constexpr int kGdnScanSm80Bytes =
    2 * ((2 * 64 * 128 + 5 * 64 * 64 + 64 * 64) * 2 + 5 * 64 * 4);

struct GatedDeltaParams {
  const uint16_t* q;
  const uint16_t* k;
  const uint16_t* v;
  int64_t row_stride;
  const float* log_decay;
  const float* beta;
  float* state;
  uint16_t* out;
  int64_t out_stride;
  int n_k_heads;
  int n_v_heads;
};

struct GdnDecodeParams {
  GatedDeltaParams rows;
  const GdnSpan* spans;
  int64_t slot_stride;
};

// Workspace of a prefill, for each chunk and value head unless said otherwise:
//            generic                              sm80
//   inverse  float32 [64][64]  X                  its three bfloat16 parts [3][64][64]
//   weights  float32 [64][64]  (qn_i . kn_j) D_ij  its two upper parts [2][64][64]
//   decays   exp(G_i), exp(G_last - G_i) [2][64]  exp(G_i) times the scales of k and of q,
//                                                 exp(G_last - G_i) times the scale of k, beta,
//                                                 exp(G_last) [5][64]
//   scales   [chunk][k head][2][64], generic alone: what rows of q and of k are multiplied by
struct GdnChunkParams {
  GatedDeltaParams rows;
  void* inverse;
  void* weights;
  float* decays;
  float* scales;
  int64_t n_tokens;
  int64_t first_length;  // tokens of the first chunk, 1..64
  int n_chunks;

  // First token of a chunk.
  LOCKSTEP_HOST_DEVICE int64_t begin(int chunk) const {
    return chunk == 0 ? 0 : first_length + int64_t{chunk - 1} * 64;
  }
  LOCKSTEP_HOST_DEVICE int64_t of_head(int chunk, int v_head) const {
    return int64_t{chunk} * rows.n_v_heads + v_head;
  }
};

void launch_gdn_decode(const GdnDecodeParams& p, int n_spans, cudaStream_t stream);
void launch_gdn_chunk_prepare(const GdnChunkParams& p, cudaStream_t stream);
void launch_gdn_chunk_scan(const GdnChunkParams& p, cudaStream_t stream);
void launch_gdn_chunk_prepare_sm80(const GdnChunkParams& p, cudaStream_t stream);
void launch_gdn_chunk_scan_sm80(const GdnChunkParams& p, int n_multiprocessors,
                                cudaStream_t stream);

}  // namespace lockstep::cuda
