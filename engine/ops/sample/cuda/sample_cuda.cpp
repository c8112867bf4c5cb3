#include "engine/ops/sample/cuda/sample_cuda.h"

#include <algorithm>
#include <map>

#include "engine/base/error.h"
#include "engine/base/math.h"
#include "engine/ops/common/cuda/row_routes.h"
#include "engine/ops/sample/cuda/sample_params.h"
#include "engine/ops/sample/cuda/sample_workspace.h"

namespace lockstep {
namespace {

// In the order in which the op touches a logit: repetition, presence and frequency, bias.
std::map<int32_t, LogitAdjustment> adjustments_of(const SamplingParams& params,
                                                  const TokenHistory& history, int64_t n_live) {
  std::map<int32_t, LogitAdjustment> found;
  const auto entry = [&](int32_t id) -> LogitAdjustment* {
    if (id < 0 || id >= n_live) return nullptr;
    LogitAdjustment& adjustment = found[id];
    adjustment.id = id;
    return &adjustment;
  };
  if (params.has_penalties()) {
    for (const auto& [id, count] : history.prompt_counts) {
      if (params.repetition_penalty == 1.0f) break;
      if (LogitAdjustment* a = entry(id)) a->flags |= cuda::kRepeated;
    }
    for (const auto& [id, count] : history.output_counts) {
      LogitAdjustment* a = entry(id);
      if (a == nullptr) continue;
      if (params.repetition_penalty != 1.0f) a->flags |= cuda::kRepeated;
      if (count != 0) a->flags |= cuda::kPenalised;
      a->output_count = count;
    }
  }
  for (const auto& [id, bias] : params.logit_bias) {
    LogitAdjustment* a = entry(id);
    if (a == nullptr) continue;
    a->flags |= cuda::kBiased;
    a->bias = bias;
  }
  return found;
}

cuda::SampleParams params_of(const SampleCudaArgs& args, const SamplePlaces& places) {
  const auto at = [&](int64_t place) {
    return reinterpret_cast<uint64_t*>(args.workspace + place);
  };
  cuda::SampleParams p{};
  p.logits = args.logits;
  p.stride = args.stride;
  p.n_vocab = args.n_vocab;
  p.n_live = args.n_live;
  p.columns = args.columns;
  p.adjustments = args.adjustments;
  p.out = args.out;
  p.n_columns = static_cast<int>(args.batch.columns().size());
  p.n_top = args.n_top;
  p.n_slices = cuda::n_slices_of(args.n_live);
  p.n_vocab_slices = cuda::n_slices_of(args.n_vocab);
  p.summaries = reinterpret_cast<cuda::SliceSummary*>(args.workspace);
  p.groups = at(places.groups);
  p.masses = at(places.masses);
  p.counts = at(places.counts);
  p.gathered = at(places.gathered);
  p.saved = reinterpret_cast<float*>(args.workspace + places.saved);
  return p;
}

}  // namespace

void SampleBatch::add(const SamplingParams& params, const TokenHistory& history, int64_t n_live,
                      int64_t position) {
  SampleColumn column;
  column.temperature = params.temperature;
  column.top_p = params.top_p;
  column.top_k = params.top_k;
  column.presence_penalty = params.presence_penalty;
  column.frequency_penalty = params.frequency_penalty;
  column.repetition_penalty = params.repetition_penalty;
  column.cut = params.min_p > 0.0f ? log_f64(params.min_p) : -745.0;
  column.seed = params.seed;
  column.position = position;
  column.first_adjustment = static_cast<int32_t>(adjustments_.size());
  for (const auto& [id, adjustment] : adjustments_of(params, history, n_live)) {
    adjustments_.push_back(adjustment);
  }
  column.n_adjustments = static_cast<int32_t>(adjustments_.size()) - column.first_adjustment;
  columns_.push_back(column);
  const bool listed = params.top_k >= 1 && params.top_k <= kListedTopK;
  any_unlisted_ |= params.temperature != 0.0f && !listed;
}

void sample_cuda(const SampleCudaArgs& args, Stream& stream) {
  const auto n_columns = static_cast<int>(args.batch.columns().size());
  const auto n_adjustments = static_cast<int64_t>(args.batch.adjustments().size());
  LOCKSTEP_CHECK(has_row_route(RowOp::vocabulary, args.n_vocab) && args.stride % 4 == 0);
  LOCKSTEP_CHECK(args.n_live >= 1 && args.n_live <= args.n_vocab);
  LOCKSTEP_CHECK(args.n_top >= 0 && args.n_top <= kMostTop);
  if (n_columns == 0) return;
  const SamplePlaces places = sample_places(args.n_vocab, n_columns, n_adjustments);
  const cuda::SampleParams p = params_of(args, places);
  const auto native = static_cast<cudaStream_t>(stream.native());
  if (args.n_top > 0) cuda::launch_describe(p, native);
  if (n_adjustments > 0) cuda::launch_adjust(p, native);
  cuda::launch_scan(p, native);
  if (args.batch.any_unlisted()) {
    stream.fill(args.workspace + places.masses, 0, places.gathered - places.masses);
    cuda::launch_masses(p, native);
    cuda::launch_draw(p, native);
  }
  cuda::launch_choose(p, native);
  if (n_adjustments > 0) cuda::launch_restore(p, native);
}

}  // namespace lockstep
