// Decode attention over INT8 pages with the matrix instruction of a warp group, sm_90a.
#include "engine/ops/attention/cuda/decode_block.cuh"
#include "engine/ops/attention/cuda/decode_sm90_cache.cuh"

namespace lockstep::cuda {

void launch_decode_sm90(KvType, const AttentionParams& p, cudaStream_t stream) {
  launch_decode<Int8GroupCache>(p, stream);
}

}  // namespace lockstep::cuda
