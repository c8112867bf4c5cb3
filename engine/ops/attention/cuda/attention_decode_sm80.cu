// Decode attention over pages with the matrix instruction of a warp, sm_80 and up.
#include "engine/ops/attention/cuda/decode_block.cuh"
#include "engine/ops/attention/cuda/decode_sm80_cache.cuh"

namespace lockstep::cuda {

void launch_decode_sm80(KvType type, const AttentionParams& p, cudaStream_t stream) {
  switch (type) {
    case KvType::int8:
      return launch_decode<Int8Cache>(p, stream);
    case KvType::bf16:
      return launch_decode<HalfCache<Bf16Numbers>>(p, stream);
    default:
      return launch_decode<HalfCache<Fp16Numbers>>(p, stream);
  }
}

}  // namespace lockstep::cuda
