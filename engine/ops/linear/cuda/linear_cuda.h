// Op         ops/linear on a card, for any number of columns; two passes (linear_plan_cuda.h).
// Math       out[t,n] = round( (sum_k x'[t,k] decode(W[n,k])) * factor[t] * row_scale[n] )
//            x' is x[t,:] times the power of two that brings its largest magnitude to [2^14, 2^15),
//            rounded to binary16 (exact for values of at least 2^-31 of the largest); factor takes
//            it out. bf16 weights on sm80: x' = x, factor 1, bfloat16 products. Products are exact,
//            sums float32 inside the matrix unit; the order over K: linear_plan_cuda.h.
// Shapes     x [n_tokens, n_cols] with row stride, out [n_tokens, n_rows] with row stride.
// Dtypes     x bfloat16; out bfloat16 or float32.
// Effects    `prepared` (linear_prepared_bytes) and out[t,
// 0..n_rows) for every t; nothing else. Oracle     linear_oracle; bound:
// tolerance::linear_cuda_bound. Errors     launches that the driver refuses: Error (device_error).
// Shapes were checked by the
//            plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/device/device.h"
#include "engine/ops/linear/cuda/linear_plan_cuda.h"

namespace lockstep {

enum class CudaOutput : uint8_t { bf16, fp32 };

// Which order of sums a position's bits have. A position keeps its pass for ever: columns of decode
// rounds are `decode`, those of a prompt are `prefill`, however few come in one call.
enum class LinearPass : uint8_t { decode, prefill };

// Kernels of `prefill`: each card runs one of them, tests compare it with the other.
enum class TileKernel : uint8_t {
  of_card,  // warp groups (wgmma) on cards of 9.0, else warps
  warps,    // mma.m16n8k16, or m8n8k4 on sm70
};

inline constexpr int kTileShapeOfCard = -1;

struct LinearCudaArgs {
  const LinearCudaPlan& plan;
  const std::byte* weight;  // pack_linear's bytes, on the card
  const uint16_t* x;
  int64_t x_stride;
  std::byte* prepared;
  void* out;
  int64_t out_stride;
  int64_t n_tokens;
  CudaOutput output;
  int n_multiprocessors;
  LinearPass pass = LinearPass::decode;
  TileKernel tiles = TileKernel::of_card;
  int tile_shape = kTileShapeOfCard;  // warp groups: index into kTileShapes, for tests
};

// For all of n_tokens, whatever their number.
int64_t linear_prepared_bytes(const LinearCudaPlan& plan, int64_t n_tokens);

// Several matrices that multiply the same x: args differ in plan (codec, width and group are the
// same), weight, out, out_stride and output alone. Decode on sm80: one launch for up to eight. The
// bits are those of linear_cuda for each.
void linear_group_cuda(std::span<const LinearCudaArgs> args, Stream& stream);

// gate.out[t,n] = round( silu(round(gate product)) * round(up product) ), as linear_cuda of both
// and swiglu_cuda give it to the bit; up.out is scratch. Outputs are bfloat16, and gate and up are
// of one shape. Decode on sm80: one launch.
void linear_swiglu_cuda(const LinearCudaArgs& gate, const LinearCudaArgs& up, Stream& stream);

// Halves of K: two matrices of one shape (multiply_as_halves), each with its own x, prepared and
// out; the bits of linear_cuda for each. Decode on sm80: one launch.
void linear_halves_cuda(const LinearCudaArgs& first, const LinearCudaArgs& second, Stream& stream);

inline void linear_cuda(const LinearCudaArgs& args, Stream& stream) {
  linear_group_cuda({&args, 1}, stream);
}

// The halves of linear_cuda, for clocks: x to `prepared`, and from there to out.
void linear_prepare_cuda(const LinearCudaArgs& args, Stream& stream);
void linear_prepared_cuda(const LinearCudaArgs& args, Stream& stream);

}  // namespace lockstep
