#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/kernel_check.h"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/verify/cuda/verify_cuda.h"

namespace lockstep::cuda {
namespace {

constexpr int kRowThreads = 128;
constexpr int kRowVector = 8;  // bfloat16 values of one load
constexpr int kAxes = 3;       // of a RopePosition

__device__ __forceinline__ int32_t chosen_token(const VerifyCudaArgs& p, int column) {
  const int32_t forced = p.forced[column];
  const bool is_forced = forced >= 0 && !mutant(Mutant::verify_forced);
  return is_forced ? forced : p.results[column].token;
}

// Whether the draft behind `column` is the token that was chosen there.
__device__ __forceinline__ bool is_right(const VerifyCudaArgs& p, int column, int32_t token) {
  const int draft = column + (mutant(Mutant::verify_draft_column) ? 0 : 1);
  return p.fed[draft] == token || mutant(Mutant::verify_unseen);
}

__global__ void __launch_bounds__(kVerifySpans) verify_spans(const VerifyCudaArgs p) {
  const int s = static_cast<int>(threadIdx.x);
  if (s >= p.n_spans) return;
  const VerifySpan span = p.spans[s];
  int n_taken = 1;
  bool stays = true;
  for (int c = 0; c < span.n_columns; ++c) {
    const int column = span.first_column + c;
    const int32_t token = chosen_token(p, column);
    if (stays || !mutant(Mutant::verify_stale_ids)) p.ids[column] = stays ? max(token, 0) : 0;
    stays = stays && c + 1 < span.n_columns && is_right(p, column, token);
    if (stays) ++n_taken;
  }
  p.n_taken[s] = n_taken;
  p.last.positions[s] = p.positions[span.first_column + n_taken - 1];
  const int n_before = n_taken - (mutant(Mutant::verify_place) ? 0 : 1);
  p.last.first_positions[s] = p.first_positions[s] + n_before;
}

__global__ void __launch_bounds__(kRowThreads)
    take_rows(const __grid_constant__ TakeRowsCudaArgs p) {
  const int64_t column = (int64_t{blockIdx.y} * kRowThreads + threadIdx.x) * kRowVector;
  if (column >= p.width) return;
  const int s = static_cast<int>(blockIdx.x);
  const int32_t n_before = mutant(Mutant::take_first_row) ? 0 : p.n_taken[s] - 1;
  const int64_t row = p.spans[s].first_column + n_before;
  *reinterpret_cast<uint4*>(p.out + s * p.width + column) =
      *reinterpret_cast<const uint4*>(p.rows + row * p.width + column);
}

__global__ void __launch_bounds__(kVerifySpans) offer_drafts(const OfferDraftsCudaArgs p) {
  const int s = static_cast<int>(threadIdx.x);
  if (s >= p.n_spans) return;
  const int32_t best = p.best[s];
  p.offers[s] = best < 0 ? DraftOffer{0.0f, -1}
                         : DraftOffer{p.logits[s * p.stride + best],
                                      mutant(Mutant::offer_row) ? best : p.row_ids[best]};
}

__global__ void __launch_bounds__(kVerifySpans) next_draft(const NextDraftCudaArgs p) {
  const int s = static_cast<int>(threadIdx.x);
  if (s >= p.n_spans) return;
  DraftOffer best = p.offers[s];
  for (int rank = 1; rank < p.n_ranks; ++rank) {
    const DraftOffer other = p.offers[rank * p.n_spans + s];
    const bool ties = mutant(Mutant::draft_tie) && other.logit == best.logit;
    if (other.id >= 0 && (best.id < 0 || other.logit > best.logit || ties)) best = other;
  }
  const int32_t draft = max(best.id, 0);
  p.drafts[s] = draft;
  p.places.ids[s] = draft;
  const bool at_end = p.places.first_positions[s] >= p.last_positions[s];
  if (at_end && !mutant(Mutant::draft_past_end)) return;
  ++p.places.first_positions[s];
  auto* axes = reinterpret_cast<int32_t*>(p.places.positions + s);
  for (int axis = 0; axis < kAxes; ++axis) ++axes[axis];
}

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep {

void verify_cuda(const VerifyCudaArgs& args, Stream& stream) {
  LOCKSTEP_KERNEL_CHECK(args.n_spans >= 1 && args.n_spans <= kVerifySpans);
  cuda::arm_mutant();
  cuda::verify_spans<<<1, kVerifySpans, 0, static_cast<cudaStream_t>(stream.native())>>>(args);
  cuda_check_launch("verify");
}

void take_rows_cuda(const TakeRowsCudaArgs& args, Stream& stream) {
  LOCKSTEP_KERNEL_CHECK(args.n_spans >= 1 && args.n_spans <= kVerifySpans);
  LOCKSTEP_KERNEL_CHECK(args.width % cuda::kRowVector == 0);
  cuda::arm_mutant();
  constexpr int64_t kBlock = int64_t{cuda::kRowThreads} * cuda::kRowVector;
  const dim3 blocks(static_cast<unsigned>(args.n_spans),
                    static_cast<unsigned>((args.width + kBlock - 1) / kBlock));
  cuda::take_rows<<<blocks, cuda::kRowThreads, 0, static_cast<cudaStream_t>(stream.native())>>>(
      args);
  cuda_check_launch("take_rows");
}

void offer_drafts_cuda(const OfferDraftsCudaArgs& args, Stream& stream) {
  LOCKSTEP_KERNEL_CHECK(args.n_spans >= 1 && args.n_spans <= kVerifySpans);
  cuda::arm_mutant();
  cuda::offer_drafts<<<1, kVerifySpans, 0, static_cast<cudaStream_t>(stream.native())>>>(args);
  cuda_check_launch("offer_drafts");
}

void next_draft_cuda(const NextDraftCudaArgs& args, Stream& stream) {
  LOCKSTEP_KERNEL_CHECK(args.n_spans >= 1 && args.n_spans <= kVerifySpans);
  cuda::arm_mutant();
  cuda::next_draft<<<1, kVerifySpans, 0, static_cast<cudaStream_t>(stream.native())>>>(args);
  cuda_check_launch("next_draft");
}

}  // namespace lockstep
