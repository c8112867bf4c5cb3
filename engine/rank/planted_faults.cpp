#include "engine/rank/planted_faults.h"

#if defined(LOCKSTEP_FAULTS)

#include <algorithm>
#include <bit>
#include <vector>

#include "engine/base/float_formats.h"

namespace lockstep {
namespace {

// Largest exponent that a saturated gate needs: 1 / (1 + exp(-100)) is 1 in float32.
constexpr float kOpenGate = 100.0f;

int64_t size_of(const PlantedRows& rows) {
  return rows.n_rows * rows.width;
}

template <typename Change>
void change_all(float* values, int64_t n, const Change& change) {
  for (int64_t i = 0; i < n; ++i) values[i] = change(values[i]);
}

float through_fp16(float x) {
  return f16_to_float(float_to_f16(x));
}

float truncated_to_bf16(float x) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000u);
}

// Every block of `block` values takes the place of the one before it, the first that of the last.
void rotate_blocks(const PlantedRows& rows, int64_t block) {
  for (int64_t row = 0; row < rows.n_rows; ++row) {
    float* values = rows.values + row * rows.width;
    std::rotate(values, values + block, values + rows.width);
  }
}

// Exchanges the axes of every square head.
void transpose_heads(std::vector<float>& state, size_t n) {
  for (size_t head = 0; head + n * n <= state.size(); head += n * n) {
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < i; ++j) std::swap(state[head + i * n + j], state[head + j * n + i]);
    }
  }
}

// States of the request that ended last.
std::vector<GdnState>& previous_states() {
  static std::vector<GdnState> states;
  return states;
}

}  // namespace

void plant_norm_faults(RmsNormArgs& args) {
  if (fault_fires("norm.eps-1000-times")) args.eps *= 1000.0f;
  if (fault_fires("norm.weight-offset-missing")) args.weight_offset = 0.0f;
}

void plant_head_faults(const PlantedRows& qg, const PlantedRows& q, int n_heads, int n_kv_heads,
                       int head_dim, const FaultSite& site) {
  const bool open = fault_fires("attention.gate-missing", site);
  const bool next = fault_fires("attention.gate-of-next-head", site);
  for (int64_t row = 0; row < qg.n_rows && (open || next); ++row) {
    float* values = qg.values + row * qg.width;
    std::vector<float> first(values + head_dim, values + 2 * head_dim);
    for (int head = 0; head < n_heads; ++head) {
      float* gate = values + (2 * head + 1) * head_dim;
      if (open) std::fill_n(gate, head_dim, kOpenGate);
      if (next && head + 1 < n_heads) std::copy_n(gate + 2 * head_dim, head_dim, gate);
      if (next && head + 1 == n_heads) std::copy_n(first.data(), head_dim, gate);
    }
  }
  if (!fault_fires("attention.heads-interleaved", site)) return;
  // Head h reads KV head h mod n instead of h / group.
  const int group = n_heads / n_kv_heads;
  for (int64_t row = 0; row < q.n_rows; ++row) {
    float* values = q.values + row * q.width;
    const std::vector<float> before(values, values + q.width);
    for (int head = 0; head < n_heads; ++head) {
      const int place = head % n_kv_heads * group + head / n_kv_heads;
      std::copy_n(before.data() + head * head_dim, head_dim, values + place * head_dim);
    }
  }
}

void plant_attention_faults(AttentionArgs& args, bool decode, const FaultSite& site) {
  if (fault_fires("attention.scale-without-root", site)) args.scale *= args.scale;
  if (decode && args.first_position > 0 && fault_fires("attention.newest-key-unseen", site)) {
    --args.first_position;
  }
  if (args.first_position >= kAttentionSegment &&
      fault_fires("attention.first-segment-unseen", site)) {
    args.first_visible = kAttentionSegment;
  }
}

void plant_kv_faults(const PlantedRows& k, const PlantedRows& v, bool decode,
                     const FaultSite& site) {
  if (decode && fault_fires("kv.newest-value-lost", site)) std::fill_n(v.values, size_of(v), 0.0f);
  if (!fault_fires("kv.rounded-to-bf16", site)) return;
  change_all(k.values, size_of(k), round_to_bf16);
  change_all(v.values, size_of(v), round_to_bf16);
}

void plant_gate_faults(const PlantedRows& log_decay, const PlantedRows& beta,
                       const FaultSite& site) {
  if (fault_fires("gdn.decay-missing", site)) {
    std::fill_n(log_decay.values, size_of(log_decay), 0.0f);
  }
  if (fault_fires("gdn.decay-of-next-head", site)) rotate_blocks(log_decay, 1);
  if (fault_fires("gdn.beta-is-one", site)) std::fill_n(beta.values, size_of(beta), 1.0f);
}

void plant_output_gate_faults(const PlantedRows& z, int head_dim, const FaultSite& site) {
  if (fault_fires("gdn.gate-of-next-head", site)) rotate_blocks(z, head_dim);
}

void plant_delta_faults(GatedDeltaArgs& args) {
  if (fault_fires("gdn.q-k-swapped")) std::swap(args.q, args.k);
  if (fault_fires("gdn.chunk-grid-shifted")) ++args.first_position;
}

void plant_state_rounding(float* state, int64_t n) {
  if (fault_fires("gdn.state-rounded-to-bf16")) change_all(state, n, round_to_bf16);
}

void plant_partial_faults(const PlantedRows& first, float* second, bool holds_last) {
  const int64_t n = size_of(first);
  if (fault_fires("comm.partials-to-fp16")) {
    change_all(first.values, n, through_fp16);
    if (second != nullptr) change_all(second, n, through_fp16);
  }
  if (second != nullptr && fault_fires("comm.partials-in-other-order")) {
    std::swap_ranges(first.values, first.values + n, second);
  }
  float* last = second != nullptr ? second : first.values;
  if (holds_last && fault_fires("comm.partial-stale")) {
    static std::vector<float> previous;
    previous.resize(static_cast<size_t>(n), 0.0f);
    std::swap_ranges(previous.begin(), previous.begin() + n, last);
  }
}

void plant_late_rounding(const PlantedRows& sums, Rounding rounding) {
  if (rounding == Rounding::bf16) change_all(sums.values, size_of(sums), round_to_bf16);
}

void plant_residual_faults(const PlantedRows& hidden) {
  if (fault_fires("residual.truncated")) {
    change_all(hidden.values, size_of(hidden), truncated_to_bf16);
  }
}

void plant_logit_faults(const PlantedRows& logits, int n_ranks) {
  if (fault_fires("head.logits-rounded-to-bf16")) {
    change_all(logits.values, size_of(logits), round_to_bf16);
  }
  if (fault_fires("head.logits-shifted-by-one")) rotate_blocks(logits, 1);
  if (n_ranks > 1 && fault_fires("comm.gather-order"))
    rotate_blocks(logits, logits.width / n_ranks);
}

const SamplingParams& planted_sampling(const SamplingParams& params, int rank, int64_t& position) {
  static SamplingParams planted;
  planted = params;
  const bool sampled = params.temperature > 0.0f;
  if (sampled && fault_fires("sampling.temperature-squared")) {
    planted.temperature *= planted.temperature;
  }
  if (sampled && fault_fires("sampling.seed-ignored")) planted.seed = 0;
  if (sampled && fault_fires("sampling.position-plus-1")) ++position;
  if (params.presence_penalty != 0.0f && fault_fires("sampling.presence-ignored")) {
    planted.presence_penalty = 0.0f;
  }
  if (rank == 1 && fault_fires("rank.token-differs")) planted.logit_bias[1] = 1e6f;
  return planted;
}

void plant_state_faults(const ModelConfig& config, int rank, int round, Sequence& sequence) {
  if (sequence.rope_delta != 0 && fault_fires("mrope.delta-ignored")) sequence.rope_delta = 0;
  if (fault_fires("decode.position-plus-1")) ++sequence.rope_delta;
  if (sequence.gdn.empty()) return;  // a card keeps them
  const GdnConfig& gdn = config.gdn;
  size_t gdn_layer = 0;
  for (int layer = 0; layer < config.n_layers(); ++layer) {
    if (config.layers[static_cast<size_t>(layer)] != LayerKind::gated_delta_net) continue;
    std::vector<float>& state = sequence.gdn[gdn_layer++].state;
    const FaultSite site{layer, rank, round};
    if (fault_fires("gdn.state-lost-at-prompt-end", site)) {
      std::fill(state.begin(), state.end(), 0.0f);
    }
    if (rank == 0 && fault_fires("gdn.head-state-lost-at-prompt-end", site)) {
      std::fill_n(state.begin(), int64_t{gdn.k_head_dim} * gdn.v_head_dim, 0.0f);
    }
    if (gdn.k_head_dim == gdn.v_head_dim &&
        fault_fires("gdn.state-transposed-at-prompt-end", site)) {
      transpose_heads(state, static_cast<size_t>(gdn.k_head_dim));
    }
  }
}

void plant_fresh_sequence_faults(Sequence& sequence) {
  const auto& states = previous_states();
  if (states.size() == sequence.gdn.size() && !states.empty() &&
      fault_fires("slots.states-of-previous-request")) {
    sequence.gdn = states;
  }
}

void plant_restored_faults(Sequence& sequence) {
  if (sequence.gdn.empty() || !fault_fires("cache.conv-state-lost")) return;
  for (GdnState& state : sequence.gdn) std::fill(state.conv.begin(), state.conv.end(), 0.0f);
}

void remember_for_faults(const Sequence& sequence) {
  previous_states() = sequence.gdn;
}

void plant_hidden_faults(std::vector<float>& rows, int64_t width) {
  const auto n = static_cast<int64_t>(rows.size());
  if (n <= width || !fault_fires("speculation.hidden-of-first-column")) return;
  for (int64_t at = width; at < n; at += width) {
    std::copy_n(rows.begin(), width, rows.begin() + at);
  }
}

}  // namespace lockstep

#endif
