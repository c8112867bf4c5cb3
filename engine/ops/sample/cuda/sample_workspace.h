// How the workspace of ops/sample on a card is cut. Pure host code, for memory plans too.
#pragma once

#include <cstdint>

#include "engine/ops/argmax/cuda/slice_summary.h"

namespace lockstep {

namespace cuda {
inline constexpr int kMassBins = 4096;
}  // namespace cuda

// Bytes from the start of the workspace.
struct SamplePlaces {
  int64_t summaries = 0;
  int64_t groups = 0;
  int64_t masses = 0;
  int64_t counts = 0;
  int64_t gathered = 0;
  int64_t saved = 0;
  int64_t end = 0;
};

constexpr SamplePlaces sample_places(int64_t n_vocab, int n_columns, int64_t n_adjustments) {
  constexpr int64_t kWord = 8;
  const int64_t n_slices = int64_t{cuda::n_slices_of(n_vocab)} * n_columns;
  SamplePlaces p;
  p.groups = p.summaries + n_slices * static_cast<int64_t>(sizeof(cuda::SliceSummary));
  p.masses = p.groups + n_slices * cuda::kGroups * kWord;
  p.counts = p.masses + int64_t{n_columns} * cuda::kMassBins * kWord;
  p.gathered = p.counts + int64_t{n_columns} * cuda::kMassBins * kWord;
  p.saved = p.gathered + n_vocab * n_columns * kWord;
  p.end = p.saved + n_adjustments * static_cast<int64_t>(sizeof(float));
  return p;
}

constexpr int64_t sample_workspace_bytes(int64_t n_vocab, int n_columns, int64_t n_adjustments) {
  return sample_places(n_vocab, n_columns, n_adjustments).end;
}

}  // namespace lockstep
