// Decode attention over INT8 pages, sm_80 and up. A block has one KV head and one segment; its
// eight warps go through it in steps of 128 positions that cp.async brings into a ring of shared
// memory.
//   scores   warp w owns positions 16 w..16 w + 15 of the step: S^T = K Q^T, keys are the 16 rows
//            of the matrix instruction, query rows its eight columns
//   weights  the step's maximum goes through shared memory, then every warp writes its 16 columns
//            of P
//   values   warp w owns 64 of the 256 values (w mod 4) of half the step's positions (w / 4):
//            O^T = V^T P^T. The two halves are added at the end of the segment.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/attention/cuda/attention_params.h"
#include "engine/ops/attention/cuda/attention_values.cuh"

namespace lockstep::cuda {
namespace {

template <int kTiles>
__global__ void __launch_bounds__(kThreads, 1) attention_sm80_int8(const AttentionParams p) {
  extern __shared__ __align__(128) unsigned char memory[];
  const SharedMemory<kTiles> shared(memory);
  Segment segment(p);
  if (segment.empty()) return;
  load_page_table(p, segment, shared);
  load_queries<kTiles>(p, shared);
  __syncthreads();
  for (int s = 0; s < kStages<kTiles> - 1; ++s) fetch_step<kTiles>(p, segment, shared, s);

  RowState<kTiles> rows(p, segment, shared);
  float sums[4][kTiles][4] = {};
  const int n_steps = segment.n_steps();
  for (int step = 0; step < n_steps; ++step) {
    wait_for_step<kTiles>();
    __syncthreads();
    fetch_step<kTiles>(p, segment, shared, step + kStages<kTiles> - 1);
    const Stage stage = shared.stage(step % kStages<kTiles>);
    float scores[kTiles][4] = {};
    if (!mutant(Mutant::ablate_math)) score_step<kTiles>(stage, shared, scores);
    rows.publish_maximum(scores, segment.first + step * kStep, shared);
    transpose_v_scales(stage, shared.v_scales);
    __syncthreads();
    float rescale[kTiles][2];
    rows.weigh(scores, segment.first + step * kStep, shared, rescale);
    if (!mutant(Mutant::attention_missing_barrier)) __syncthreads();
    if (!mutant(Mutant::ablate_math)) add_values<kTiles>(stage, shared, rescale, sums);
  }
  rows.store_denominators(p, segment, shared);
  store_values<kTiles>(p, segment, shared, sums);
}

template <int kTiles>
void launch(const AttentionParams& p, cudaStream_t stream) {
  arm_mutant();
  const int bytes = SharedMemory<kTiles>::kBytes + (p.segment / 64) * 4;
  cuda_check(cudaFuncSetAttribute(attention_sm80_int8<kTiles>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
             "attention: dynamic shared memory");
  const dim3 blocks(p.n_segments, p.n_kv_heads);
  attention_sm80_int8<kTiles><<<blocks, kThreads, bytes, stream>>>(p);
  cuda_check_launch("attention_sm80_int8");
}

}  // namespace

void launch_attention_sm80_int8(const AttentionParams& p, cudaStream_t stream) {
  switch ((p.n_tokens * p.group + 7) / 8) {
    case 1:
      return launch<1>(p, stream);
    case 2:
      return launch<2>(p, stream);
    case 3:
      return launch<3>(p, stream);
    case 4:
      return launch<4>(p, stream);
    case 5:
      return launch<5>(p, stream);
    default:
      return launch<6>(p, stream);
  }
}

}  // namespace lockstep::cuda
