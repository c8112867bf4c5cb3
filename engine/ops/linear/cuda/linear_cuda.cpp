#include "engine/ops/linear/cuda/linear_cuda.h"

#include <algorithm>
#include <bit>
#include <string>

#include "engine/base/error.h"
#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/linear/cuda/launch.h"
#include "engine/ops/linear/cuda/skinny_params.h"
#include "engine/ops/linear/cuda/skinny_shared.h"
#include "engine/ops/linear/cuda/tile_shape.h"
#include "engine/ops/swiglu/cuda/swiglu_cuda.h"

namespace lockstep {
namespace {

int64_t n_groups(int64_t n_tokens) {
  return (n_tokens + kSkinnyTokens - 1) / kSkinnyTokens;
}

cudaStream_t native(Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

cuda::StoredMatrix matrix_of(const LinearCudaArgs& args) {
  const LinearCudaPlan& plan = args.plan;
  const LinearRoute& route = *plan.route;
  cuda::StoredMatrix matrix{};
  matrix.codes = reinterpret_cast<const uint4*>(args.weight);
  matrix.scales = args.weight + plan.scales_offset;
  matrix.row_scale = reinterpret_cast<const float*>(args.weight + plan.row_scale_offset);
  matrix.out = args.out;
  matrix.out_stride = args.out_stride;
  matrix.n_rows = static_cast<int>(plan.n_rows);
  matrix.n_tiles = static_cast<int>(plan.padded_rows / route.tile_rows);
  matrix.scale_stride = static_cast<int>(
      route.codec == Codec::int4 ? plan.padded_rows : (plan.padded_cols + 127) / 128);
  matrix.out_float = args.output == CudaOutput::fp32;
  return matrix;
}

int n_blocks(const LinearCudaPlan& plan) {
  return static_cast<int>(plan.padded_cols / plan.route->block_columns);
}

int group_shift(const LinearCudaPlan& plan) {
  if (plan.route->codec != Codec::int4) return 0;
  const int64_t unit = plan.route->family == KernelFamily::sm70 ? 32 : plan.route->block_columns;
  return std::bit_width(static_cast<uint64_t>(std::max<int64_t>(plan.group / unit, 1))) - 1;
}

int groups_in_block(const LinearCudaPlan& plan) {
  if (plan.group == 0) return 0;
  return static_cast<int>(std::max<int64_t>(plan.route->block_columns / plan.group, 1));
}

bool decodes_in_groups(const LinearCudaArgs& args) {
  return args.pass == LinearPass::decode && args.plan.route->family == KernelFamily::sm80;
}

cuda::SkinnyParams params_of(const LinearCudaArgs& args) {
  cuda::SkinnyParams p{};
  static_cast<cuda::StoredMatrix&>(p) = matrix_of(args);
  p.group_bytes = args.plan.prepared_bytes;
  p.factors_offset = static_cast<int>(args.plan.factors_offset);
  p.n_blocks = n_blocks(args.plan);
  p.group_shift = group_shift(args.plan);
  return p;
}

// What linear_prepare_cuda writes for and linear_prepared_cuda reads.
bool multiplies_in_warp_groups(const LinearCudaArgs& args) {
  const LinearRoute& route = *args.plan.route;
  if (args.pass != LinearPass::prefill || args.tiles == TileKernel::warps) return false;
  if (route.family == KernelFamily::sm70) return false;
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
  const bool int4 = route.codec == Codec::int4;
  if (multiplies_in_warp_groups(args)) {
    return int4 ? cuda::ColumnOrder::sm90_int4 : cuda::ColumnOrder::sm90;
  }
  return int4 ? cuda::ColumnOrder::sm80_int4 : cuda::ColumnOrder::sm80;
}

}  // namespace

void cuda::no_kernel_for(Codec codec) {
  const std::string condition = fmt::format("a kernel multiplies {}", codec_name(codec));
  check_failed(condition.c_str(), __FILE__, __LINE__);
}

int64_t linear_prepared_bytes(const LinearCudaPlan& plan, int64_t n_tokens) {
  return n_groups(n_tokens) * plan.prepared_bytes;
}

namespace {

// Rows of all of `parts`, which differ in x and prepared.
void prepare_parts(std::span<const LinearCudaArgs> parts, Stream& stream) {
  const LinearCudaArgs& args = parts.front();
  const LinearCudaPlan& plan = args.plan;
  cuda::PrepareParams p{};
  p.n_cols = static_cast<int>(plan.n_cols);
  p.padded_cols = static_cast<int>(plan.padded_cols);
  p.x_stride = args.x_stride;
  p.order = column_order(args);
  p.block_columns = plan.route->block_columns;
  p.keep_bf16 = plan.route->codec == Codec::bf16 && plan.route->family == KernelFamily::sm80;
  p.n_tokens = static_cast<int>(args.n_tokens);
  p.group_bytes = plan.prepared_bytes;
  p.factors_offset = plan.factors_offset;
  for (const LinearCudaArgs& part : parts) {
    p.x[p.n_parts] = part.x;
    p.out[p.n_parts++] = part.prepared;
  }
  cuda::launch_prepare(p, native(stream));
}

}  // namespace

void linear_prepare_cuda(const LinearCudaArgs& args, Stream& stream) {
  prepare_parts({&args, 1}, stream);
}

namespace {

void launch_prefill(const LinearCudaArgs& args, cuda::SkinnyParams p, cudaStream_t stream) {
  p.n_tokens = static_cast<int>(args.n_tokens);
  p.x = args.prepared;
  p.out = args.out;
  if (multiplies_in_warp_groups(args)) {
    const int shape = args.tile_shape != kTileShapeOfCard
                          ? args.tile_shape
                          : tile_shape_for(args.plan.route->codec, p.n_tiles, args.n_tokens,
                                           args.n_multiprocessors);
    cuda::launch_tiled_sm90(args.plan.route->codec, groups_in_block(args.plan), p, shape, stream);
  } else if (args.plan.route->family == KernelFamily::sm70) {
    cuda::launch_tiled_sm70(args.plan.route->codec, p, stream);
  } else {
    cuda::launch_tiled_sm80(args.plan.route->codec, groups_in_block(args.plan), p, stream);
  }
}

void* output_of_column(const LinearCudaArgs& args, int64_t column) {
  const int64_t element = args.output == CudaOutput::fp32 ? 4 : 2;
  return static_cast<std::byte*>(args.out) + column * args.out_stride * element;
}

void launch_decode_sm70(const LinearCudaArgs& args, cudaStream_t stream) {
  cuda::SkinnyParams p = params_of(args);
  for (int64_t group = 0; group < n_groups(args.n_tokens); ++group) {
    const int64_t first = group * kSkinnyTokens;
    p.n_tokens = static_cast<int>(std::min<int64_t>(args.n_tokens - first, kSkinnyTokens));
    p.x = args.prepared + group * args.plan.prepared_bytes;
    p.out = output_of_column(args, first);
    cuda::launch_skinny_sm70(args.plan.route->codec, p, stream);
  }
}

// How the matrices of a launch belong together.
enum class Together : uint8_t { same_x, swiglu, halves };

// Up to kSkinnyMatrices matrices in one launch for each eight columns.
void launch_decode_sm80(std::span<const LinearCudaArgs> group, Together how, cudaStream_t stream) {
  const LinearCudaArgs& first = group.front();
  const LinearCudaPlan& plan = first.plan;
  cuda::SkinnyGroupParams p{};
  p.n_parts = how == Together::halves ? static_cast<int>(group.size()) : 1;
  p.n_matrices = static_cast<int>(group.size()) / p.n_parts;
  p.factors_offset = static_cast<int>(plan.factors_offset);
  p.n_blocks = n_blocks(plan);
  p.group_shift = group_shift(plan);
  p.block_shared_bytes = static_cast<int>(plan.block_shared_bytes);
  for (size_t m = 0; m < group.size(); ++m) {
    p.matrices[m] = matrix_of(group[m]);
    if (m == 0 || how == Together::same_x) p.n_tiles += p.matrices[m].n_tiles;
  }
  for (int64_t i = 0; i < n_groups(first.n_tokens); ++i) {
    const int64_t column = i * kSkinnyTokens;
    p.n_tokens = static_cast<int>(std::min<int64_t>(first.n_tokens - column, kSkinnyTokens));
    for (int part = 0; part < p.n_parts; ++part) {
      p.x[part] = group[static_cast<size_t>(part)].prepared + i * plan.prepared_bytes;
    }
    for (size_t m = 0; m < group.size(); ++m) {
      p.matrices[m].out = output_of_column(group[m], column);
    }
    cuda::launch_skinny_sm80(plan.route->codec, groups_in_block(plan), p, how == Together::swiglu,
                             first.n_multiprocessors, stream);
  }
}

}  // namespace

void linear_prepared_cuda(const LinearCudaArgs& args, Stream& stream) {
  if (args.pass == LinearPass::prefill) {
    launch_prefill(args, params_of(args), native(stream));
  } else if (decodes_in_groups(args)) {
    launch_decode_sm80({&args, 1}, Together::same_x, native(stream));
  } else {
    launch_decode_sm70(args, native(stream));
  }
}

void linear_group_cuda(std::span<const LinearCudaArgs> args, Stream& stream) {
  linear_prepare_cuda(args.front(), stream);
  if (!decodes_in_groups(args.front())) {
    for (const LinearCudaArgs& one : args) linear_prepared_cuda(one, stream);
    return;
  }
  constexpr size_t kMost = cuda::kSkinnyMatrices;
  for (size_t i = 0; i < args.size(); i += kMost) {
    launch_decode_sm80(args.subspan(i, std::min(kMost, args.size() - i)), Together::same_x,
                       native(stream));
  }
}

void linear_swiglu_cuda(const LinearCudaArgs& gate, const LinearCudaArgs& up, Stream& stream) {
  const LinearCudaArgs both[] = {gate, up};
  LOCKSTEP_CHECK(gate.plan.n_rows == up.plan.n_rows && gate.output == CudaOutput::bf16 &&
                 up.output == CudaOutput::bf16);
  if (decodes_in_groups(gate)) {
    linear_prepare_cuda(gate, stream);
    return launch_decode_sm80(both, Together::swiglu, native(stream));
  }
  linear_group_cuda(both, stream);
  auto* out = static_cast<uint16_t*>(gate.out);
  swiglu_cuda({out, gate.out_stride, static_cast<const uint16_t*>(up.out), up.out_stride, out,
               gate.out_stride, gate.n_tokens, gate.plan.n_rows},
              stream);
}

void linear_halves_cuda(const LinearCudaArgs& first, const LinearCudaArgs& second, Stream& stream) {
  const LinearCudaArgs both[] = {first, second};
  LOCKSTEP_CHECK(multiply_as_halves(first.plan, second.plan) && first.x_stride == second.x_stride);
  prepare_parts(both, stream);
  if (decodes_in_groups(first)) return launch_decode_sm80(both, Together::halves, native(stream));
  for (const LinearCudaArgs& one : both) linear_prepared_cuda(one, stream);
}

}  // namespace lockstep
