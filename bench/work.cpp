#include "bench/work.h"

namespace lockstep {
namespace {

int64_t mlp_weights(const ModelConfig& config) {
  return int64_t{3} * config.hidden_size * config.intermediate_size;
}

// Queries with their gates, keys, values, output.
int64_t attention_weights(const ModelConfig& config) {
  const int64_t q_width = int64_t{config.n_heads} * config.head_dim;
  const int64_t kv_width = int64_t{config.n_kv_heads} * config.head_dim;
  return config.hidden_size * (3 * q_width + 2 * kv_width);
}

int64_t gdn_weights(const ModelConfig& config) {
  const GdnConfig& gdn = config.gdn;
  const int64_t outputs = gdn.conv_channels() + gdn.v_width() + 2 * gdn.n_v_heads;
  return config.hidden_size * (outputs + gdn.v_width());
}

int64_t gdn_state_bytes(const ModelConfig& config) {
  const GdnConfig& gdn = config.gdn;
  return int64_t{4} * gdn.n_v_heads * gdn.k_head_dim * gdn.v_head_dim;
}

}  // namespace

int64_t linear_flops(int64_t n_rows, int64_t n_cols, int64_t n_tokens) {
  return 2 * n_rows * n_cols * n_tokens;
}

int64_t matrix_bytes(Codec codec, int64_t n_rows, int64_t n_cols, int64_t group) {
  const int64_t codes = n_rows * codec_row_bytes(codec, n_cols);
  const int64_t row_scales = 4 * n_rows;
  switch (codec) {
    case Codec::f32:
    case Codec::bf16:
    case Codec::f16:
      return codes;
    case Codec::fp8:
      return codes + row_scales;
    case Codec::fp8_block:
      return codes + 4 * ((n_rows + 127) / 128) * ((n_cols + 127) / 128);
    case Codec::nvfp4:
      return codes + n_rows * (n_cols / 16) + row_scales;
    case Codec::int4:
      return codes + 4 * n_rows * (n_cols / group);
  }
  return codes;
}

int64_t attention_flops(int64_t n_heads, int64_t head_dim, int64_t first, int64_t n_tokens) {
  const int64_t pairs = n_tokens * first + n_tokens * (n_tokens + 1) / 2;
  return 4 * n_heads * head_dim * pairs;
}

int64_t kv_bytes(KvType type, int64_t n_kv_heads, int64_t head_dim, int64_t n_positions) {
  const int64_t scales = type == KvType::int8 ? 2 * (head_dim / kInt8ScaleGroup) : 0;
  return 2 * n_kv_heads * n_positions * (head_dim * kv_element_bytes(type) + scales);
}

int64_t gated_delta_flops(int64_t n_v_heads, int64_t dk, int64_t dv, int64_t n_tokens) {
  return 6 * n_v_heads * dk * dv * n_tokens;
}

int64_t prefill_flops(const ModelConfig& config, int64_t n_tokens, bool mtp) {
  const int64_t hidden = config.hidden_size;
  const GdnConfig& gdn = config.gdn;
  const int64_t attention =
      linear_flops(attention_weights(config) + mlp_weights(config), 1, n_tokens) +
      attention_flops(config.n_heads, config.head_dim, 0, n_tokens);
  const int64_t recurrent =
      linear_flops(gdn_weights(config) + mlp_weights(config), 1, n_tokens) +
      gated_delta_flops(gdn.n_v_heads, gdn.k_head_dim, gdn.v_head_dim, n_tokens);
  const int64_t n_attention = config.n_kv_layers();
  int64_t flops = n_attention * attention + (config.n_layers() - n_attention) * recurrent +
                  linear_flops(config.vocab_size, hidden, 1);
  if (mtp && config.n_mtp_layers > 0)
    flops += attention + linear_flops(hidden, 2 * hidden, n_tokens);
  return flops;
}

WeightBytes weight_bytes(const Checkpoint& checkpoint, const ModelConfig& config) {
  WeightBytes bytes;
  int64_t head = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const bool embedding = name.starts_with("model.language_model.embed_tokens.");
    const bool is_head = config.tie_word_embeddings ? embedding : name.starts_with("lm_head.");
    if (is_head) {
      head += tensor->n_bytes();
    } else if (name.starts_with("mtp.") && config.n_mtp_layers > 0) {
      bytes.draft += tensor->n_bytes();
    } else if (name.starts_with("model.language_model.") && !embedding) {
      bytes.round += tensor->n_bytes();
    }
  }
  bytes.round += head;
  if (bytes.draft > 0) bytes.draft += head;
  return bytes;
}

int64_t decode_bytes(const ModelConfig& config, const WeightBytes& weights,
                     const DecodeWork& work) {
  const int64_t n_attention = config.n_kv_layers();
  const int64_t positions = work.first_position + work.n_tokens / 2;
  const int64_t layer = kv_bytes(work.kv, config.n_kv_heads, config.head_dim, positions);
  const int64_t states = (config.n_layers() - n_attention) * gdn_state_bytes(config);
  return work.n_rounds * (weights.round + n_attention * layer + states) +
         work.n_drafts * (weights.draft + layer);
}

}  // namespace lockstep
