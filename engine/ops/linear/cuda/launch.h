// Between the op and its kernels: one function a family.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/model/weight_matrix.h"

namespace lockstep::cuda {

struct PrepareParams;
struct SkinnyGroupParams;
struct SkinnyParams;

void launch_prepare(const PrepareParams& p, cudaStream_t stream);

// A codec that the plan let through has a kernel: aborts.
[[noreturn]] void no_kernel_for(Codec codec);

// groups_in_block: int4, groups of columns in one block of the kernel.
void launch_skinny_sm70(Codec codec, const SkinnyParams& p, cudaStream_t stream);
// swiglu: the first matrix's rows are gates of the second's.
void launch_skinny_sm80(Codec codec, int groups_in_block, const SkinnyGroupParams& p, bool swiglu,
                        int n_multiprocessors, cudaStream_t stream);

// Any number of columns.
void launch_tiled_sm70(Codec codec, const SkinnyParams& p, cudaStream_t stream);
void launch_tiled_sm80(Codec codec, int groups_in_block, const SkinnyParams& p,
                       cudaStream_t stream);

// Activations in ColumnOrder::sm90 or sm90_int4; shape: index into kTileShapes.
void launch_tiled_sm90(Codec codec, int groups_in_block, const SkinnyParams& p, int shape,
                       cudaStream_t stream);

}  // namespace lockstep::cuda
