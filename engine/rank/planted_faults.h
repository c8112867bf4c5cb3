// Planted faults that change the arguments or results of one op: mutants of the rank. Release
// programs compile every function to nothing, as fault_fires to false.
#pragma once

#include "engine/base/fault.h"
#include "engine/model/config.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/gated_delta/gated_delta.h"
#include "engine/ops/rmsnorm/rmsnorm.h"
#include "engine/ops/sample/sample.h"
#include "engine/rank/sequence.h"
#include "engine/rank/weights.h"

namespace lockstep {

// The rows of a batch that a fault may change: values [n_rows, width].
struct PlantedRows {
  float* values;
  int64_t n_rows;
  int64_t width;
};

#if defined(LOCKSTEP_FAULTS)

void plant_weight_faults(RankWeights& weights);
void plant_norm_faults(RmsNormArgs& args);
// qg: rows of heads, query then gate; the queries are the prepared ones in `q`.
void plant_head_faults(const PlantedRows& qg, const PlantedRows& q, int n_heads, int n_kv_heads,
                       int head_dim, const FaultSite& site);
void plant_attention_faults(AttentionArgs& args, bool decode, const FaultSite& site);
void plant_kv_faults(const PlantedRows& k, const PlantedRows& v, bool decode,
                     const FaultSite& site);
// log_decay and beta [n_tokens, heads].
void plant_gate_faults(const PlantedRows& log_decay, const PlantedRows& beta,
                       const FaultSite& site);
// z [n_tokens, heads * dv].
void plant_output_gate_faults(const PlantedRows& z, int head_dim, const FaultSite& site);
void plant_delta_faults(GatedDeltaArgs& args);
void plant_state_rounding(float* state, int64_t n);
// Both partial sums of a row-parallel product (second null when it is another rank's).
void plant_partial_faults(const PlantedRows& first, float* second, bool holds_last);
// The only rounding that sums of unrounded partial sums get.
void plant_late_rounding(const PlantedRows& sums, Rounding rounding);
void plant_residual_faults(const PlantedRows& hidden);
void plant_logit_faults(const PlantedRows& logits, int n_ranks);
// The parameters to sample with: `params` itself unless a fault changes them, and the position.
const SamplingParams& planted_sampling(const SamplingParams& params, int rank, int64_t& position);
// What is lost between prefill and decode.
void plant_state_faults(const ModelConfig& config, int rank, int round, Sequence& sequence);
void plant_fresh_sequence_faults(Sequence& sequence);
void plant_restored_faults(Sequence& sequence);  // from the prefix cache
void remember_for_faults(const Sequence& sequence);
// Final-norm rows of a round's taken columns [n, width], on their way to the drafter.
void plant_hidden_faults(std::vector<float>& rows, int64_t width);

#else

inline void plant_weight_faults(RankWeights&) {}
inline void plant_norm_faults(RmsNormArgs&) {}
inline void plant_head_faults(const PlantedRows&, const PlantedRows&, int, int, int,
                              const FaultSite&) {}
inline void plant_attention_faults(AttentionArgs&, bool, const FaultSite&) {}
inline void plant_kv_faults(const PlantedRows&, const PlantedRows&, bool, const FaultSite&) {}
inline void plant_gate_faults(const PlantedRows&, const PlantedRows&, const FaultSite&) {}
inline void plant_output_gate_faults(const PlantedRows&, int, const FaultSite&) {}
inline void plant_delta_faults(GatedDeltaArgs&) {}
inline void plant_state_rounding(float*, int64_t) {}
inline void plant_partial_faults(const PlantedRows&, float*, bool) {}
inline void plant_late_rounding(const PlantedRows&, Rounding) {}
inline void plant_residual_faults(const PlantedRows&) {}
inline void plant_logit_faults(const PlantedRows&, int) {}
inline const SamplingParams& planted_sampling(const SamplingParams& params, int, int64_t&) {
  return params;
}
inline void plant_state_faults(const ModelConfig&, int, int, Sequence&) {}
inline void plant_fresh_sequence_faults(Sequence&) {}
inline void plant_restored_faults(Sequence&) {}
inline void remember_for_faults(const Sequence&) {}
inline void plant_hidden_faults(std::vector<float>&, int64_t) {}

#endif

}  // namespace lockstep
