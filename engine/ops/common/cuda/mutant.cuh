// Kernel mutants: faults that the op tests must catch (see docs/v100.md). A normal build has no
// trace of them. With LOCKSTEP_KERNEL_MUTANTS the environment variable LOCKSTEP_KERNEL_MUTANT arms
// one by its number.
#pragma once

#ifdef LOCKSTEP_KERNEL_MUTANTS
#include <cuda_runtime.h>

#include <cstdlib>
#endif

namespace lockstep::cuda {

enum class Mutant : int {
  none = 0,
  linear_missing_barrier = 1,      // the sum over warps starts before they have written
  linear_accumulator_kept = 2,     // a tile starts from the sums of the one before
  linear_scale_index = 3,          // the scale of the neighbouring group
  linear_row_tail = 4,             // rows beyond the matrix are written
  linear_stale_buffer = 5,         // sums of two tiles share one buffer
  linear_token_tail = 6,           // columns beyond n_tokens are written
  linear_factor_lost = 7,          // the power of two of the activations stays in the result
  linear_last_block = 8,           // the last block of columns is left out
  linear_order_of_one = 9,         // warps added the other way round when there is one column
  linear_stale_stage = 10,         // a stage of the ring is used again before it is refilled
  prepare_maximum = 11,            // the row's largest magnitude ignores its last value
  tiled_missing_barrier = 21,      // finished sums are read before all warps have written them
  tiled_stale_stage = 22,          // a stage of the ring is filled while it is read, or not at all
  tiled_row_tail = 23,             // rows beyond the matrix are written
  tiled_token_tail = 24,           // columns beyond n_tokens are written
  tiled_factor_group = 25,         // the powers of two of the first eight columns for all
  tiled_column_place = 26,         // every tile of columns multiplies the first ones
  tiled_last_block = 27,           // the last block of K is left out
  tiled_group_unscaled = 28,       // sums of a group of columns enter without their scale
  tiled_group_scale = 29,          // the group scale of the row eight rows further
  swiglu_gate_lost = 30,           // a product meets the gate of the tile before
  skinny_matrix_border = 31,       // tiles of the second matrix of a launch are one too low
  skinny_share = 32,               // sums of warps are added in an order that depends on the tile
  verify_unseen = 33,              // every draft stays, whatever was chosen
  verify_draft_column = 34,        // a draft is compared with the token of its own column
  verify_forced = 35,              // a forced token counts for nothing
  verify_stale_ids = 36,           // ids of columns that do not stay are left as they were
  verify_place = 37,               // drafts start one position too late
  take_first_row = 38,             // the row of a span's first column, whatever stays
  offer_row = 39,                  // a draft is offered by its row, not by that row's token
  draft_tie = 41,                  // the later rank wins a tie
  skinny_half = 102,               // both products of halves read the first half's activations
  attention_mask = 12,             // a column sees the position after its own
  attention_missing_barrier = 13,  // values are weighed before all weights are there
  attention_stale_maximum = 14,    // old sums are not rescaled when the maximum grows
  attention_v_scale = 15,          // the V scale of the neighbouring group
  attention_k_scale = 16,          // the K scale of the neighbouring group
  attention_page = 17,             // the page table is read one entry too far in the second page
  attention_segment_tail = 18,     // the last partial step of a segment is skipped
  attention_merge_order = 19,      // segments merged without rescaling the first one
  attention_denominator = 20,      // the denominator misses the merge factor
  attention_stale_values = 40,     // V of positions beyond the newest stays as it was in memory
  attention_prefill_mask = 42,     // a row of prefill sees the position after its own
  attention_prefill_rescale = 43,  // old sums of prefill are not rescaled when the maximum grows
  attention_prefill_halves = 44,   // weights of a half are not brought to the common maximum
  attention_prefill_barrier = 45,  // scores of the next page start before values are added
  attention_sm70_mask = 46,        // sm_70: a column sees the position after its own
  attention_sm70_rescale = 47,     // sm_70: old sums are not rescaled when the maximum grows
  attention_sm70_downs = 48,       // sm_70: weights are not brought to the common maximum
  attention_sm70_k_scale = 49,     // sm_70: the K scale of the neighbouring group
  attention_sm70_barrier = 50,     // sm_70: values are weighed before all weights are there
  attention_sm90_mask = 51,        // sm_90: a row sees the position after its own
  attention_sm90_rescale = 52,     // sm_90: old sums are not rescaled when the maximum grows
  attention_sm90_release = 53,     // sm_90: a tile is given back before it is read
  attention_sm90_barrier = 54,     // sm_90: a tile is read before it is there
  attention_merge_early = 100,     // segments are merged before their sums are there
  conv_last_tap = 55,              // the newest input gets the weight of the one before
  conv_window_shift = 56,          // a prefill leaves the window one input too old
  conv_tile_border = 57,           // a tile of tokens starts with the wrong past
  conv_committed_row = 58,         // a round leaves the window one column too old
  gates_dt_bias = 59,              // dt_bias is forgotten
  gates_record_row = 60,           // the record starts one column too late
  gated_norm_tree = 61,            // the last step of the sum over a head is left out
  gated_norm_sigmoid = 62,         // the gate is the sigmoid of z
  delta_epsilon = 63,              // epsilon belongs to the mean
  delta_beta = 64,                 // beta is forgotten
  delta_query_row = 65,            // q of the row before
  delta_missing_barrier = 66,      // steps start before the rows are there
  delta_committed_row = 67,        // the state is stored one row too late
  delta_stale_read = 68,           // read-out before the update
  chunk_mask = 69,                 // the read-out leaves out the row's own key
  chunk_tail = 70,                 // rows beyond a short chunk are written
  chunk_missing_barrier = 71,      // V' overwrites the right side while others read it
  chunk_decay_to_end = 72,         // keys enter the state without their decay
  draft_past_end = 73,             // drafts go on beyond the last position
  norm_branch_unrounded = 75,      // the sum of two partial sums is not rounded
  norm_sum_unrounded = 76,         // the residual sum is normalised before it is rounded
  norm_eps = 77,                   // the norm leaves epsilon out
  layernorm_tail = 78,             // threads beyond the row add the mean's square to the variance
  layernorm_stale_buffer = 79,     // both sums of a row share one buffer without a barrier
  add_tail = 80,                   // the last values of a sum are left out
  embedding_border = 81,           // the last row of the table counts as outside
  weighted_unfused = 82,           // products are rounded before they are added
  swiglu_stride = 83,              // rows of `up` are taken to be dense
  gelu_side = 84,                  // positive values take the tail of negative ones
  bias_unrounded = 85,             // the product with its bias is not rounded before what follows
  rope_axis = 86,                  // all pairs turn by the temporal position
  hadamard_stage = 87,             // the stage of stride 8 is left out
  kv_page = 88,                    // the second page is taken for the first
  kv_overflow = 89,                // binary16 overflows to infinity
  kv_scale_group = 90,             // the scale ignores half of its group
  kv_truncated = 91,               // codes are truncated
  prepare_value_changed = 92,      // values are normalised like keys
  vision_mask = 93,                // keys beyond the last one count
  vision_stale_maximum = 94,       // old sums are not rescaled when the maximum grows
  argmax_tie = 95,                 // the highest id wins a tie
  argmax_nan = 96,                 // a NaN is ignored
  sample_mass_before = 97,         // a bin's search forgets the mass of the bins above
  sample_rounds = 98,              // Philox makes one round fewer
  sample_not_restored = 99,        // logits keep their penalties

  // No faults but ablations, for lockstep-bench-ablate: what is left without half of the work.
  ablate_math = 1001,
  ablate_loads = 1002,
};

#ifdef LOCKSTEP_KERNEL_MUTANTS

static __constant__ int armed_mutant;

__device__ __forceinline__ bool mutant(Mutant which) {
  return armed_mutant == static_cast<int>(which);
}

// Before the first launch: hands the number to the kernels of this source.
static inline void arm_mutant() {
  static const bool armed = [] {
    const char* text = std::getenv("LOCKSTEP_KERNEL_MUTANT");
    const int number = text == nullptr ? 0 : std::atoi(text);
    cudaMemcpyToSymbol(armed_mutant, &number, sizeof(number));
    cudaDeviceSynchronize();
    return true;
  }();
  static_cast<void>(armed);
}

#else

__host__ __device__ constexpr bool mutant(Mutant) {
  return false;
}
static inline void arm_mutant() {}

#endif

}  // namespace lockstep::cuda
