#include "engine/model/gguf/gguf_export.h"

#include <cmath>
#include <map>
#include <memory>

#include "engine/base/error.h"
#include "engine/base/math.h"
#include "engine/model/gguf/gguf_tokenizer.h"
#include "engine/model/gguf/gguf_writer.h"
#include "engine/model/inspect.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

GgufType target_type(const std::string& target) {
  if (target == "gguf-f32") return GgufType::f32;
  if (target == "gguf-f16") return GgufType::f16;
  LOCKSTEP_CHECK(target == "gguf-q8_0");
  return GgufType::q8_0;
}

// Layer kinds must be what full_attention_interval says: GGUF has no list of them.
int attention_interval(const ModelConfig& config) {
  int interval = 0;
  while (interval < config.n_layers() &&
         config.layers[static_cast<size_t>(interval)] != LayerKind::full_attention) {
    ++interval;
  }
  ++interval;
  for (int i = 0; i < config.n_layers(); ++i) {
    const bool full = config.layers[static_cast<size_t>(i)] == LayerKind::full_attention;
    if (full != ((i + 1) % interval == 0)) {
      fail("layer {}: GGUF needs a full-attention layer at every {}th place", i, interval);
    }
  }
  return interval;
}

class Exporter {
 public:
  Exporter(const ModelConfig& config, const Checkpoint& source, GgufType type, GgufWriter& writer)
      : config_(config), source_(source), type_(type), writer_(writer) {}

  void add_keys(bool with_mtp, const std::string& target) {
    const std::string arch = "qwen35";
    const auto u32 = [&](const std::string& key, int64_t value) {
      writer_.add_u32(arch + "." + key, static_cast<uint32_t>(value));
    };
    writer_.add_string("general.architecture", arch);
    writer_.add_string("general.type", "model");
    writer_.add_u32("general.file_type", target == "gguf-f32" ? 0 : target == "gguf-f16" ? 1 : 7);
    writer_.add_u32("general.quantization_version", 2);
    u32("block_count", config_.n_layers() + (with_mtp ? 1 : 0));
    u32("context_length", config_.max_positions);
    u32("embedding_length", config_.hidden_size);
    u32("feed_forward_length", config_.intermediate_size);
    u32("attention.head_count", config_.n_heads);
    u32("attention.head_count_kv", config_.n_kv_heads);
    u32("attention.key_length", config_.head_dim);
    u32("attention.value_length", config_.head_dim);
    writer_.add_f32(arch + ".attention.layer_norm_rms_epsilon", config_.rms_norm_eps);
    writer_.add_f32(arch + ".rope.freq_base", static_cast<float>(config_.rope_theta));
    u32("rope.dimension_count", config_.rotary_dim);
    const int half = config_.rotary_dim / 2;
    writer_.add_i32_array(arch + ".rope.dimension_sections",
                          {(half + 2) / 3, (half + 1) / 3, half / 3, 0});
    u32("ssm.conv_kernel", kConvWidth);
    u32("ssm.inner_size", config_.gdn.v_width());
    u32("ssm.state_size", config_.gdn.k_head_dim);
    u32("ssm.time_step_rank", config_.gdn.n_v_heads);
    u32("ssm.group_count", config_.gdn.n_k_heads);
    u32("full_attention_interval", attention_interval(config_));
    u32("vocab_size", config_.vocab_size);
    if (with_mtp) u32("nextn_predict_layers", 1);
  }

  void add_tensors(bool with_mtp) {
    const int64_t hidden = config_.hidden_size;
    const std::string text = "model.language_model.";
    matrix("token_embd.weight", text + "embed_tokens", config_.vocab_size, hidden);
    norm("output_norm.weight", text + "norm.weight", hidden);
    if (!config_.tie_word_embeddings) {
      matrix("output.weight", "lm_head", config_.vocab_size, hidden);
    }
    for (int i = 0; i < config_.n_layers(); ++i) {
      const std::string from = text + "layers." + std::to_string(i) + ".";
      layer("blk." + std::to_string(i) + ".", from, config_.layers[static_cast<size_t>(i)]);
    }
    if (with_mtp) mtp("blk." + std::to_string(config_.n_layers()) + ".");
  }

 private:
  using Order = std::vector<int64_t>;  // stored index -> source index; empty: as it is

  void layer(const std::string& to, const std::string& from, LayerKind kind) {
    const int64_t hidden = config_.hidden_size;
    norm(to + "attn_norm.weight", from + "input_layernorm.weight", hidden);
    norm(to + "post_attention_norm.weight", from + "post_attention_layernorm.weight", hidden);
    matrix(to + "ffn_gate.weight", from + "mlp.gate_proj", config_.intermediate_size, hidden);
    matrix(to + "ffn_up.weight", from + "mlp.up_proj", config_.intermediate_size, hidden);
    matrix(to + "ffn_down.weight", from + "mlp.down_proj", hidden, config_.intermediate_size);
    if (kind == LayerKind::full_attention) {
      attention(to, from + "self_attn.");
    } else {
      gdn(to, from + "linear_attn.");
    }
  }

  void attention(const std::string& to, const std::string& from) {
    const int64_t hidden = config_.hidden_size;
    const int64_t q = int64_t{config_.n_heads} * config_.head_dim;
    const int64_t kv = int64_t{config_.n_kv_heads} * config_.head_dim;
    matrix(to + "attn_q.weight", from + "q_proj", 2 * q, hidden);
    matrix(to + "attn_k.weight", from + "k_proj", kv, hidden);
    matrix(to + "attn_v.weight", from + "v_proj", kv, hidden);
    matrix(to + "attn_output.weight", from + "o_proj", hidden, q);
    norm(to + "attn_q_norm.weight", from + "q_norm.weight", config_.head_dim);
    norm(to + "attn_k_norm.weight", from + "k_norm.weight", config_.head_dim);
  }

  void gdn(const std::string& to, const std::string& from) {
    const int64_t hidden = config_.hidden_size;
    const GdnConfig& gdn = config_.gdn;
    const Order heads = tiled_order(1, 0);
    const Order values = tiled_order(gdn.v_head_dim, 0);
    const Order channels = tiled_order(gdn.v_head_dim, 2 * gdn.k_width());
    matrix(to + "attn_qkv.weight", from + "in_proj_qkv", gdn.conv_channels(), hidden, channels);
    matrix(to + "attn_gate.weight", from + "in_proj_z", gdn.v_width(), hidden, values);
    matrix(to + "ssm_alpha.weight", from + "in_proj_a", gdn.n_v_heads, hidden, heads);
    matrix(to + "ssm_beta.weight", from + "in_proj_b", gdn.n_v_heads, hidden, heads);
    matrix(to + "ssm_out.weight", from + "out_proj", hidden, gdn.v_width(), {}, values);
    small(to + "ssm_conv1d.weight",
          permuted(source_.floats(from + "conv1d.weight", {gdn.conv_channels(), 1, kConvWidth}),
                   channels, kConvWidth),
          {gdn.conv_channels(), kConvWidth});
    std::vector<float> a_log = source_.floats(from + "A_log", {gdn.n_v_heads});
    for (float& value : a_log) value = static_cast<float>(-exp_f64(value));
    small(to + "ssm_a", permuted(a_log, heads, 1), {gdn.n_v_heads});
    small(to + "ssm_dt.bias", permuted(source_.floats(from + "dt_bias", {gdn.n_v_heads}), heads, 1),
          {gdn.n_v_heads});
    small(to + "ssm_norm.weight", source_.floats(from + "norm.weight", {gdn.v_head_dim}),
          {gdn.v_head_dim});
  }

  void mtp(const std::string& to) {
    const int64_t hidden = config_.hidden_size;
    layer(to, "mtp.layers.0.", LayerKind::full_attention);
    matrix(to + "nextn.eh_proj.weight", "mtp.fc", hidden, 2 * hidden);
    norm(to + "nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight", hidden);
    norm(to + "nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight", hidden);
    norm(to + "nextn.shared_head_norm.weight", "mtp.norm.weight", hidden);
  }

  // The value heads, `width` entries each, in tiled order after `start` entries as they are.
  Order tiled_order(int64_t width, int64_t start) const {
    Order order;
    for (int64_t i = 0; i < start; ++i) order.push_back(i);
    for (int64_t position = 0; position < config_.gdn.n_v_heads; ++position) {
      const int64_t head = tiled_v_head(config_.gdn, position);
      for (int64_t i = 0; i < width; ++i) order.push_back(start + head * width + i);
    }
    return order;
  }

  static std::vector<float> permuted(const std::vector<float>& values, const Order& order,
                                     int64_t width) {
    std::vector<float> result(values.size());
    for (size_t i = 0; i < order.size(); ++i) {
      for (int64_t j = 0; j < width; ++j) {
        result[i * static_cast<size_t>(width) + static_cast<size_t>(j)] =
            values[static_cast<size_t>(order[i] * width + j)];
      }
    }
    return result;
  }

  void small(const std::string& name, std::vector<float> values, std::vector<int64_t> shape) {
    const auto width = static_cast<size_t>(shape.back());
    auto owned = std::make_shared<std::vector<float>>(std::move(values));
    writer_.add_tensor({name, GgufType::f32, std::move(shape),
                        [owned, width](int64_t row, float* out) {
                          const auto begin = owned->begin() + row * static_cast<int64_t>(width);
                          std::copy(begin, begin + static_cast<int64_t>(width), out);
                        },
                        "small"});
  }

  void norm(const std::string& name, const std::string& from, int64_t width) {
    std::vector<float> values = source_.floats(from, {width});
    for (float& value : values) value += 1.0f;
    small(name, std::move(values), {width});
  }

  void matrix(const std::string& name, const std::string& base, int64_t n_rows, int64_t n_cols,
              Order rows = {}, Order columns = {}) {
    if (type_ == GgufType::q8_0 && n_cols % 32 != 0) {
      fail("matrix {}: {} columns, q8_0 needs a multiple of 32", base, n_cols);
    }
    auto stored = std::make_shared<StoredMatrix>(source_.matrix(base, n_rows, n_cols));
    const auto read_row = [stored, rows = std::move(rows), columns = std::move(columns)](
                              int64_t row, float* out) {
      const int64_t from = rows.empty() ? row : rows[static_cast<size_t>(row)];
      decode_row(stored->view, from, out);
      if (columns.empty()) return;
      const std::vector<float> values(out, out + columns.size());
      for (size_t k = 0; k < columns.size(); ++k) out[k] = values[static_cast<size_t>(columns[k])];
    };
    writer_.add_tensor({name, type_, {n_rows, n_cols}, read_row, tensor_class(base)});
  }

  const ModelConfig& config_;
  const Checkpoint& source_;
  const GgufType type_;
  GgufWriter& writer_;
};

// Adds up |after - before|^2 by class and tensor.
class ErrorSums {
 public:
  void add(const GgufTensor& tensor, std::span<const float> before, std::span<const float> after) {
    Sum& sum = sums_[{tensor.group, tensor.name}];
    for (size_t i = 0; i < before.size(); ++i) {
      const double difference = static_cast<double>(after[i]) - before[i];
      sum.error += difference * difference;
      sum.norm += static_cast<double>(before[i]) * before[i];
    }
  }

  std::vector<ConvertError> report(const std::string& format) const {
    std::map<std::string, ConvertError> rows;
    std::map<std::string, Sum> totals;
    for (const auto& [key, sum] : sums_) {
      ConvertError& row = rows[key.first];
      row.tensor_class = key.first;
      row.format = key.first == "small" ? "gguf-f32" : format;
      ++row.n_encoded;
      totals[key.first].error += sum.error;
      totals[key.first].norm += sum.norm;
      const double relative = sum.norm > 0.0 ? std::sqrt(sum.error / sum.norm) : 0.0;
      if (relative >= row.worst) {
        row.worst = relative;
        row.worst_matrix = key.second;
      }
    }
    std::vector<ConvertError> report;
    for (auto& [group, row] : rows) {
      const Sum& total = totals[group];
      row.relative_error = total.norm > 0.0 ? std::sqrt(total.error / total.norm) : 0.0;
      report.push_back(row);
    }
    return report;
  }

 private:
  struct Sum {
    double error = 0.0;
    double norm = 0.0;
  };
  std::map<std::pair<std::string, std::string>, Sum> sums_;
};

}  // namespace

const std::vector<std::string_view>& gguf_targets() {
  static const std::vector<std::string_view> targets = {"gguf-f32", "gguf-f16", "gguf-q8_0"};
  return targets;
}

int64_t tiled_v_head(const GdnConfig& gdn, int64_t position) {
  const int64_t n_per_key = gdn.n_v_heads / gdn.n_k_heads;
  return position % gdn.n_k_heads * n_per_key + position / gdn.n_k_heads;
}

GgufReport export_gguf(const ModelConfig& config, const Checkpoint& source,
                       const CompanionFiles& companions, const std::string& target, bool with_mtp,
                       const fs::path& out) {
  if (with_mtp && source.find("mtp.norm.weight") == nullptr) {
    fail("{}: has no MTP layer: convert without --mtp", source.label());
  }
  std::error_code error;
  fs::create_directories(out, error);
  if (error) fail("{}: {}", out.string(), error.message());
  GgufWriter writer;
  Exporter exporter(config, source, target_type(target), writer);
  exporter.add_keys(with_mtp, target);
  add_gguf_tokenizer(config, companions, writer);
  exporter.add_tensors(with_mtp);
  GgufReport report;
  report.path = out / fmt::format("model-{}.gguf", target.substr(target.find('-') + 1));
  ErrorSums sums;
  writer.write(report.path, [&](const GgufTensor& tensor, std::span<const float> before,
                                std::span<const float> after) { sums.add(tensor, before, after); });
  report.n_tensors = static_cast<int64_t>(writer.tensors().size());
  report.errors = sums.report(target);
  return report;
}

}  // namespace lockstep
