// What the host passes to the kernels of sample.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/ops/argmax/cuda/slice_summary.h"
#include "engine/ops/sample/cuda/sample_cuda.h"
#include "engine/ops/sample/cuda/sample_workspace.h"

namespace lockstep::cuda {

inline constexpr double kBinsPerUnit = 64.0;  // of (largest - logit) / temperature
inline constexpr double kMassUnit = 0x1p44;
inline constexpr int32_t kRepeated = 1;  // flags of LogitAdjustment
inline constexpr int32_t kPenalised = 2;
inline constexpr int32_t kBiased = 4;

struct SampleParams {
  float* logits;
  int64_t stride;
  int64_t n_vocab;
  int64_t n_live;
  const SampleColumn* columns;
  const LogitAdjustment* adjustments;
  SampleResult* out;
  int n_columns;
  int n_top;
  int n_slices;        // of the live logits
  int n_vocab_slices;  // of all
  // Workspace.
  SliceSummary* summaries;  // [n_columns, n_slices]
  uint64_t* groups;         // [n_columns, n_slices, kGroups] best ranks
  uint64_t* masses;         // [n_columns, kMassBins]
  uint64_t* counts;         // [n_columns, kMassBins], where top_k cuts
  uint64_t* gathered;       // [n_columns, n_vocab] ranks
  float* saved;             // [adjustments] logits before them
};

// Slices of the raw logits of the whole vocabulary, then what log-probabilities need of them.
void launch_describe(const SampleParams& p, cudaStream_t stream);
void launch_adjust(const SampleParams& p, cudaStream_t stream);
void launch_restore(const SampleParams& p, cudaStream_t stream);
// Slices of the live logits.
void launch_scan(const SampleParams& p, cudaStream_t stream);
void launch_masses(const SampleParams& p, cudaStream_t stream);
// Tokens of greedy columns and of those with a short list; of the others.
void launch_choose(const SampleParams& p, cudaStream_t stream);
void launch_draw(const SampleParams& p, cudaStream_t stream);

}  // namespace lockstep::cuda
