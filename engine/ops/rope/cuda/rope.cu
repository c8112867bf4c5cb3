#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/kernel_check.h"
#include "engine/ops/common/cuda/math_f64.cuh"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/common/cuda/rows.cuh"
#include "engine/ops/rope/cuda/rope_cuda.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;

struct Angles {
  const int32_t* positions;
  const float* inv_freq;
  float2* out;
  int64_t n_tokens;
  int n_pairs;
  bool grid;  // rows and columns of a picture
};

// One thread a pair of a column.
__global__ void __launch_bounds__(kThreads) make_angles(const Angles p) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= p.n_tokens * p.n_pairs) return;
  const int64_t token = at / p.n_pairs;
  const int pair = static_cast<int>(at % p.n_pairs);
  const int half = p.n_pairs / 2;
  const int axis = p.grid ? pair / half : mutant(Mutant::rope_axis) ? 0 : pair % 3;
  const int frequency = p.grid ? pair % half : pair;
  const auto position = static_cast<float>(p.positions[token * (p.grid ? 2 : 3) + axis]);
  const float angle = p.inv_freq[frequency] * position;
  double sine = 0.0;
  double cosine = 0.0;
  sincos_f64(static_cast<double>(angle), &sine, &cosine);
  p.out[at] = make_float2(static_cast<float>(cosine), static_cast<float>(sine));
}

void launch_angles(const Angles& angles, cudaStream_t stream) {
  if (angles.n_tokens == 0) return;
  LOCKSTEP_KERNEL_CHECK(angles.n_pairs > 0 && angles.n_pairs % 2 == 0);
  arm_mutant();
  const auto blocks =
      static_cast<unsigned>((angles.n_tokens * angles.n_pairs + kThreads - 1) / kThreads);
  make_angles<<<blocks, kThreads, 0, stream>>>(angles);
  cuda_check_launch("rope angles");
}

// A thread turns two neighbouring pairs of one head.
__global__ void __launch_bounds__(kThreads) rotate_heads(const RopeCudaArgs p) {
  const int per_head = p.n_pairs / 2;
  const int at = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  if (at >= p.n_heads * per_head) return;
  const int64_t token = blockIdx.x;
  const int pair = at % per_head * 2;
  const float4 angle = *reinterpret_cast<const float4*>(p.angles + (token * p.n_pairs + pair) * 2);
  uint16_t* head = p.x + token * p.token_stride + int64_t{at / per_head} * p.head_dim + pair;
  auto* first = reinterpret_cast<uint32_t*>(head);
  auto* second = reinterpret_cast<uint32_t*>(head + p.n_pairs);
  const uint32_t a = *first;
  const uint32_t b = *second;
  const float a0 = __uint_as_float(a << 16);
  const float a1 = __uint_as_float(a & 0xffff0000u);
  const float b0 = __uint_as_float(b << 16);
  const float b1 = __uint_as_float(b & 0xffff0000u);
  *first = bf16_pair(fmaf(a0, angle.x, -(b0 * angle.y)), fmaf(a1, angle.z, -(b1 * angle.w)));
  *second = bf16_pair(fmaf(b0, angle.x, a0 * angle.y), fmaf(b1, angle.z, a1 * angle.w));
}

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep {

void rope_angles_cuda(const RopePosition* positions, const float* inv_freq, int64_t n_tokens,
                      int n_pairs, float* angles, Stream& stream) {
  cuda::launch_angles({reinterpret_cast<const int32_t*>(positions), inv_freq,
                       reinterpret_cast<float2*>(angles), n_tokens, n_pairs, false},
                      static_cast<cudaStream_t>(stream.native()));
}

void vision_rope_angles_cuda(const GridPosition* positions, const float* inv_freq, int64_t n_tokens,
                             int n_pairs, float* angles, Stream& stream) {
  cuda::launch_angles({reinterpret_cast<const int32_t*>(positions), inv_freq,
                       reinterpret_cast<float2*>(angles), n_tokens, n_pairs, true},
                      static_cast<cudaStream_t>(stream.native()));
}

void rope_cuda(const RopeCudaArgs& args, Stream& stream) {
  LOCKSTEP_KERNEL_CHECK(args.n_pairs > 0 && args.n_pairs % 2 == 0 &&
                        2 * args.n_pairs <= args.head_dim);
  LOCKSTEP_KERNEL_CHECK(args.head_dim % 2 == 0 && args.token_stride % 2 == 0);
  if (args.n_tokens == 0) return;
  cuda::arm_mutant();
  const int per_token = args.n_heads * (args.n_pairs / 2);
  const dim3 blocks(static_cast<unsigned>(args.n_tokens),
                    static_cast<unsigned>((per_token + cuda::kThreads - 1) / cuda::kThreads));
  cuda::rotate_heads<<<blocks, cuda::kThreads, 0, static_cast<cudaStream_t>(stream.native())>>>(
      args);
  cuda_check_launch("rope");
}

}  // namespace lockstep
