#include "engine/ops/linear/cuda/linear_cuda.h"

#include <algorithm>
#include <bit>
#include <string>

#include "engine/base/error.h"
#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/linear/cuda/launch.h"
#include "engine/ops/linear/cuda/skinny_params.h"

namespace lockstep {
namespace {

int64_t n_groups(int64_t n_tokens) {
  return (n_tokens + kSkinnyTokens - 1) / kSkinnyTokens;
}

cudaStream_t native(Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

cuda::SkinnyParams params_of(const LinearCudaArgs& args) {
  const LinearCudaPlan& plan = args.plan;
  const LinearRoute& route = *plan.route;
  cuda::SkinnyParams p{};
  p.codes = reinterpret_cast<const uint4*>(args.weight);
  p.scales = args.weight + plan.scales_offset;
  p.row_scale = reinterpret_cast<const float*>(args.weight + plan.row_scale_offset);
  p.group_bytes = plan.prepared_bytes;
  p.factors_offset = static_cast<int>(plan.factors_offset);
  p.out_stride = args.out_stride;
  p.n_rows = static_cast<int>(plan.n_rows);
  p.n_tiles = static_cast<int>(plan.padded_rows / route.tile_rows);
  p.n_blocks = static_cast<int>(plan.padded_cols / route.block_columns);
  p.scale_stride = static_cast<int>(route.codec == Codec::int4 ? plan.padded_rows
                                                               : (plan.padded_cols + 127) / 128);
  if (route.codec == Codec::int4) {
    const int64_t unit = route.family == KernelFamily::sm70 ? 32 : route.block_columns;
    p.group_shift =
        std::bit_width(static_cast<uint64_t>(std::max<int64_t>(plan.group / unit, 1))) - 1;
  }
  p.out_float = args.output == CudaOutput::fp32;
  p.block_shared_bytes = static_cast<int>(plan.block_shared_bytes);
  return p;
}

}  // namespace

namespace {

// What linear_prepare_cuda writes for and linear_prepared_cuda reads.
bool multiplies_in_warp_groups(const LinearCudaArgs& args) {
  const LinearRoute& route = *args.plan.route;
  if (args.pass != LinearPass::prefill || args.tiles == TileKernel::warps) return false;
  if (route.family == KernelFamily::sm70) return false;
  if (route.codec == Codec::int4 || route.codec == Codec::fp8_block) return false;
  int device = 0;
  int major = 0;
  int minor = 0;
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "card");
  cuda_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "card");
  return major == 9 && minor == 0;
}

cuda::ColumnOrder column_order(const LinearCudaArgs& args) {
  const LinearRoute& route = *args.plan.route;
  if (route.family == KernelFamily::sm70) return cuda::ColumnOrder::sm70;
  if (multiplies_in_warp_groups(args)) return cuda::ColumnOrder::sm90;
  return route.codec == Codec::int4 ? cuda::ColumnOrder::sm80_int4 : cuda::ColumnOrder::sm80;
}

}  // namespace

void cuda::no_kernel_for(Codec codec) {
  const std::string condition = fmt::format("a kernel multiplies {}", codec_name(codec));
  check_failed(condition.c_str(), __FILE__, __LINE__);
}

int64_t linear_prepared_bytes(const LinearCudaPlan& plan, int64_t n_tokens) {
  return n_groups(n_tokens) * plan.prepared_bytes;
}

void linear_prepare_cuda(const LinearCudaArgs& args, Stream& stream) {
  const LinearCudaPlan& plan = args.plan;
  cuda::PrepareParams p{};
  p.n_cols = static_cast<int>(plan.n_cols);
  p.padded_cols = static_cast<int>(plan.padded_cols);
  p.x_stride = args.x_stride;
  p.order = column_order(args);
  p.block_columns = plan.route->block_columns;
  p.keep_bf16 = plan.route->codec == Codec::bf16 && plan.route->family == KernelFamily::sm80;
  p.n_tokens = static_cast<int>(args.n_tokens);
  p.x = args.x;
  p.out = args.prepared;
  p.group_bytes = plan.prepared_bytes;
  p.factors_offset = plan.factors_offset;
  cuda::launch_prepare(p, native(stream));
}

namespace {

int groups_in_block(const LinearCudaPlan& plan) {
  if (plan.group == 0) return 0;
  return static_cast<int>(std::max<int64_t>(plan.route->block_columns / plan.group, 1));
}

void launch_prefill(const LinearCudaArgs& args, cuda::SkinnyParams p, cudaStream_t stream) {
  p.n_tokens = static_cast<int>(args.n_tokens);
  p.x = args.prepared;
  p.out = args.out;
  if (multiplies_in_warp_groups(args)) {
    cuda::launch_tiled_sm90(args.plan.route->codec, p, stream);
  } else if (args.plan.route->family == KernelFamily::sm70) {
    cuda::launch_tiled_sm70(args.plan.route->codec, p, stream);
  } else {
    cuda::launch_tiled_sm80(args.plan.route->codec, groups_in_block(args.plan), p, stream);
  }
}

}  // namespace

void linear_prepared_cuda(const LinearCudaArgs& args, Stream& stream) {
  const LinearCudaPlan& plan = args.plan;
  cuda::SkinnyParams p = params_of(args);
  if (args.pass == LinearPass::prefill) return launch_prefill(args, p, native(stream));
  const int64_t element = args.output == CudaOutput::fp32 ? 4 : 2;
  for (int64_t group = 0; group < n_groups(args.n_tokens); ++group) {
    p.n_tokens =
        static_cast<int>(std::min<int64_t>(args.n_tokens - group * kSkinnyTokens, kSkinnyTokens));
    p.x = args.prepared + group * plan.prepared_bytes;
    p.out = static_cast<std::byte*>(args.out) + group * kSkinnyTokens * args.out_stride * element;
    if (plan.route->family == KernelFamily::sm70) {
      cuda::launch_skinny_sm70(plan.route->codec, p, native(stream));
    } else {
      cuda::launch_skinny_sm80(plan.route->codec, groups_in_block(plan), p, args.n_multiprocessors,
                               native(stream));
    }
  }
}

}  // namespace lockstep
