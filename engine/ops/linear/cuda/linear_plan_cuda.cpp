#include "engine/ops/linear/cuda/linear_plan_cuda.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>

#include "engine/base/error.h"
#include "engine/ops/linear/cuda/skinny_shared.h"
#include "engine/ops/linear/cuda/tiled_shared.h"

namespace lockstep {
namespace {

constexpr std::array kRoutes = {
    LinearRoute{Codec::nvfp4, KernelFamily::sm70, 32, 64, 32, 0, 0},
    LinearRoute{Codec::fp8, KernelFamily::sm70, 32, 32, 16, 0, 0},
    LinearRoute{Codec::fp8_block, KernelFamily::sm70, 32, 32, 16, 0, 0},
    LinearRoute{Codec::int4, KernelFamily::sm70, 32, 64, 32, 0, 32},
    LinearRoute{Codec::bf16, KernelFamily::sm70, 32, 16, 8, 0, 0},
    LinearRoute{Codec::f16, KernelFamily::sm70, 32, 16, 8, 0, 0},
    LinearRoute{Codec::nvfp4, KernelFamily::sm80, 16, 128, 32, 1152, 0},
    LinearRoute{Codec::fp8, KernelFamily::sm80, 16, 64, 16, 1024, 0},
    LinearRoute{Codec::fp8_block, KernelFamily::sm80, 16, 64, 16, 1152, 0},
    LinearRoute{Codec::int4, KernelFamily::sm80, 16, 128, 32, sm80_int4_stage_bytes(1), 32},
    LinearRoute{Codec::bf16, KernelFamily::sm80, 16, 32, 8, 1024, 0},
    LinearRoute{Codec::f16, KernelFamily::sm80, 16, 32, 8, 1024, 0},
};

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

const LinearRoute* find_route(Codec codec, KernelFamily family) {
  for (const LinearRoute& route : kRoutes) {
    if (route.codec == codec && route.family == family) return &route;
  }
  return nullptr;
}

int64_t scale_bytes(const LinearCudaPlan& plan) {
  switch (plan.route->codec) {
    case Codec::nvfp4:
      return plan.padded_rows * (plan.padded_cols / 16);
    case Codec::fp8_block:
      return 4 * ((plan.n_rows + 127) / 128) * ((plan.padded_cols + 127) / 128);
    case Codec::int4:
      return 8 * plan.padded_rows * round_up(plan.padded_cols, plan.group) / plan.group;
    default:
      return 0;
  }
}

}  // namespace

std::string_view family_name(KernelFamily family) {
  return family == KernelFamily::sm70 ? "sm70" : family == KernelFamily::sm80 ? "sm80" : "sm90";
}

std::span<const LinearRoute> linear_routes() {
  return kRoutes;
}

KernelFamily family_of_card(const DeviceFacts& facts) {
  return facts.arch < 80 ? KernelFamily::sm70 : KernelFamily::sm80;
}

LinearCudaPlan plan_linear_cuda(Codec codec, int64_t n_rows, int64_t n_cols, int64_t group,
                                KernelFamily family, int64_t block_shared_bytes,
                                std::string_view what) {
  const LinearRoute* route = find_route(codec, family);
  if (route == nullptr) {
    fail("{}: no CUDA kernel is registered for {} on {}: convert the weights", what,
         codec_name(codec), family_name(family));
  }
  if (n_rows < 1 || n_cols < 1 || n_cols % codec_column_granule(codec) != 0) {
    fail("{}: no CUDA kernel is registered for {} of shape [{}, {}]", what, codec_name(codec),
         n_rows, n_cols);
  }
  if (route->smallest_group != 0 &&
      (group < route->smallest_group || !std::has_single_bit(static_cast<uint64_t>(group)))) {
    fail(
        "{}: no CUDA kernel is registered for {} with groups of {} columns: powers of two from {} "
        "on are",
        what, codec_name(codec), group, route->smallest_group);
  }
  LinearCudaPlan plan;
  plan.route = route;
  plan.n_rows = n_rows;
  plan.n_cols = n_cols;
  plan.group = codec == Codec::int4 ? group : 0;
  plan.padded_rows = round_up(n_rows, route->tile_rows);
  plan.padded_cols = round_up(n_cols, route->block_columns);
  const int64_t code_bytes = plan.padded_rows * plan.padded_cols / route->vector_codes * 16;
  plan.scales_offset = code_bytes;
  plan.row_scale_offset = round_up(plan.scales_offset + scale_bytes(plan), 16);
  plan.weight_bytes = plan.row_scale_offset + 4 * plan.padded_rows;
  plan.factors_offset = 2 * kSkinnyTokens * plan.padded_cols;
  plan.prepared_bytes = round_up(plan.factors_offset + 4 * kSkinnyTokens, 256);
  plan.shared_bytes = kSm70PartialBytes;
  if (family == KernelFamily::sm80) {
    const bool small_groups = codec == Codec::int4 && group < route->block_columns;
    const int stage_bytes =
        small_groups ? sm80_int4_stage_bytes(route->block_columns / static_cast<int>(group))
                     : route->stage_bytes;
    plan.shared_bytes = std::max(skinny_sm80_bytes(plan.padded_cols, kSkinnyTokens,
                                                   std::end(kSm80FullShapes)[-1], stage_bytes),
                                 int64_t{kTiledSharedBytes});
  }
  plan.block_shared_bytes = block_shared_bytes;
  if (plan.shared_bytes > block_shared_bytes) {
    fail(
        "{}: {} columns need {} bytes of shared memory and a block of this card has {}: no CUDA "
        "kernel is registered for that",
        what, n_cols, plan.shared_bytes, block_shared_bytes);
  }
  return plan;
}

bool multiply_together(const LinearCudaPlan& a, const LinearCudaPlan& b) {
  return a.route == b.route && a.n_cols == b.n_cols && a.group == b.group;
}

bool multiply_as_halves(const LinearCudaPlan& a, const LinearCudaPlan& b) {
  return multiply_together(a, b) && a.n_rows == b.n_rows;
}

}  // namespace lockstep
