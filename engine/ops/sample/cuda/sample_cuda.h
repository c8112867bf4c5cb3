// Op         ops/sample on a card, for several columns, with what log-probabilities need.
// Math       as ops/sample. Greedy columns and those with top_k 1 to kListedTopK: the CPU's
//            arithmetic on the candidates, operation by operation, so the CPU's token. Other
//            columns: masses rint(exp(x) 2^44) as integers, whose sums do not depend on an order;
//            the token is the CPU's unless u * total lies nearer to a border between two candidates
//            than tolerance::sample_border. Candidates stand in the order of their logits: where
//            two differ by less than 2^-53 of the temperature the CPU takes them as equal.
//            top: the n_top largest raw logits, lowest id first on ties, and log_sum_exp as
//            argmax_cuda has it, both over the whole vocabulary.
// Shapes     logits [n_columns, n_vocab] with a stride that is a multiple of 4; only ids below
//            n_live can be chosen; columns [n_columns] and adjustments on the card.
// Dtypes     float32 logits.
// Effects    out, `workspace` (sample_workspace_bytes). Logits are changed on the way and restored.
// Errors     a NaN among the live logits, or no candidate: token -1; the caller must stop.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/device/device.h"
#include "engine/ops/sample/cuda/sample_workspace.h"
#include "engine/ops/sample/sample.h"

namespace lockstep {

inline constexpr int kListedTopK = 64;
inline constexpr int kMostTop = 32;

// What penalties and bias do to one logit; each id stands once in a column's list.
struct LogitAdjustment {
  int32_t id = 0;
  int32_t output_count = 0;
  float bias = 0.0f;
  int32_t flags = 0;
};

// Parameters of one column as the kernels read them.
struct SampleColumn {
  float temperature = 0.0f;
  float top_p = 1.0f;
  int32_t top_k = 0;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  float repetition_penalty = 1.0f;
  int32_t first_adjustment = 0;
  int32_t n_adjustments = 0;
  double cut = 0.0;  // smallest (logit - largest) / temperature of a candidate
  uint64_t seed = 0;
  int64_t position = 0;
};

struct SampleResult {
  int32_t token = -1;
  float chosen_value = 0.0f;  // its raw logit
  double log_sum_exp = 0.0;   // with n_top
  int32_t top_ids[kMostTop] = {};
  float top_values[kMostTop] = {};
};

// Columns of one launch, made on the host and copied to the card.
class SampleBatch {
 public:
  void add(const SamplingParams& params, const TokenHistory& history, int64_t n_live,
           int64_t position);

  const std::vector<SampleColumn>& columns() const { return columns_; }
  const std::vector<LogitAdjustment>& adjustments() const { return adjustments_; }
  bool any_unlisted() const { return any_unlisted_; }  // a column samples without a short list

 private:
  std::vector<SampleColumn> columns_;
  std::vector<LogitAdjustment> adjustments_;
  bool any_unlisted_ = false;
};

struct SampleCudaArgs {
  float* logits = nullptr;
  int64_t stride = 0;
  int64_t n_vocab = 0;
  int64_t n_live = 0;
  const SampleBatch& batch;
  const SampleColumn* columns = nullptr;         // batch.columns() on the card
  const LogitAdjustment* adjustments = nullptr;  // batch.adjustments() on the card
  int n_top = 0;                                 // 0: no log-probabilities
  std::byte* workspace = nullptr;
  SampleResult* out = nullptr;  // on the card
};

void sample_cuda(const SampleCudaArgs& args, Stream& stream);

}  // namespace lockstep
