#include "validation/exact/exact_model.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/base/mapped_file.h"

namespace lockstep::exact {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kHidden = 256;
constexpr int kIntermediate = 64;
constexpr int kHeadDim = 64;
constexpr int kHeads = 4;
constexpr int kKvHeads = 2;
constexpr int kGdnHeads = 2;
constexpr float kBig = 0x1p22f;       // channel 0
constexpr float kNormUndo = 0x1p18f;  // 1 + w of every visible channel: 2^22 / sqrt(256)

// Channels of the residual stream.
enum Channel {
  kBigChannel,
  kOne,
  kAlsoOne,
  kToken,
  kGate,  // 1 for tokens that look at the past
  kFirstShown,
  kFinal = kFirstShown + static_cast<int>(Shown::count),
  kOneHot = 128  // 64 channels: 1 at the token
};

int channel(Shown shown) {
  return kFirstShown + static_cast<int>(shown);
}

struct Matrix {
  int n_rows = 0;
  int n_cols = 0;
  std::vector<float> values;
  std::vector<int64_t> shape;
  bool f32 = false;  // else bf16, in which every value must be exact

  Matrix(int rows, int cols)
      : n_rows(rows), n_cols(cols), values(static_cast<size_t>(rows) * cols), shape{rows, cols} {}
  float& at(int row, int col) {
    LOCKSTEP_CHECK(row < n_rows && col < n_cols);
    return values[static_cast<size_t>(row) * n_cols + col];
  }
};

class Writer {
 public:
  void add(const std::string& name, Matrix matrix) { tensors_.emplace(name, std::move(matrix)); }

  void add_vector(const std::string& name, std::vector<float> values) {
    Matrix vector(1, static_cast<int>(values.size()));
    vector.values = std::move(values);
    vector.shape = {vector.n_cols};
    vector.f32 = true;
    add(name, std::move(vector));
  }

  void write(const std::filesystem::path& path) const {
    Json header;
    std::string data;
    for (const auto& [name, matrix] : tensors_) {
      const size_t begin = data.size();
      for (const float value : matrix.values) append(value, matrix.f32, data);
      header[name] = {{"dtype", matrix.f32 ? "F32" : "BF16"},
                      {"shape", matrix.shape},
                      {"data_offsets", {begin, data.size()}}};
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    std::string file(8, '\0');
    for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
    write_file_atomically(path, file + text + data);
  }

 private:
  static void append(float value, bool f32, std::string& data) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const int first_byte = f32 ? 0 : 2;
    LOCKSTEP_CHECK(f32 || (bits & 0xffffu) == 0);
    for (int byte = first_byte; byte < 4; ++byte) {
      data.push_back(static_cast<char>(bits >> (8 * byte) & 0xffu));
    }
  }

  std::map<std::string, Matrix> tensors_;
};

// 1 + w = 2^18 everywhere but in channel 0, which stays hidden.
std::vector<float> stream_norm() {
  std::vector<float> weight(kHidden, kNormUndo - 1.0f);
  weight[kBigChannel] = -1.0f;
  return weight;
}

Matrix embedding() {
  Matrix table(kVocabulary, kHidden);
  for (int token = 0; token < kVocabulary; ++token) {
    table.at(token, kBigChannel) = kBig;
    table.at(token, kOne) = 1;
    table.at(token, kAlsoOne) = 1;
    if (token >= kTokens) continue;
    table.at(token, kToken) = static_cast<float>(token);
    table.at(token, kGate) = token >= kGateToken ? 1 : 0;
    table.at(token, kOneHot + token) = 1;
  }
  return table;
}

// Row v < 64: 2 u v - v^2, largest at v = u. v^2 has up to 12 bits: 8 of them a constant.
Matrix lm_head() {
  Matrix head(kVocabulary, kHidden);
  for (int v = 0; v < kTokens; ++v) {
    const int square = v * v;
    head.at(v, kFinal) = static_cast<float>(2 * v);
    head.at(v, kOne) = static_cast<float>(-(square - square % 64));
    head.at(v, kAlsoOne) = static_cast<float>(-(square % 64));
  }
  for (int row = kTokens; row < kVocabulary; ++row) {
    const int shown = row - kTokens;
    const bool used = shown < static_cast<int>(Shown::count);
    head.at(row, kOne) = static_cast<float>(used ? -kShownOffset : -kUnusedOffset);
    if (used) head.at(row, kFirstShown + shown) = -1;
  }
  return head;
}

// out = (sum of `terms` + offset) mod 64, for sums below 256: neuron 0 is the sum, the next six
// step it down at 64, 128 and 192. ReLU(n) = SiLU(128 n) / 128.
void add_mlp(Writer& writer, const std::string& prefix, const std::vector<int>& terms, int offset,
             int out) {
  Matrix gate(kIntermediate, kHidden);
  Matrix up(kIntermediate, kHidden);
  Matrix down(kHidden, kIntermediate);
  const auto neuron = [&](int index, int threshold, float weight) {
    for (const int term : terms) gate.at(index, term) = 128;
    gate.at(index, kOne) = static_cast<float>(128 * (offset - threshold));
    up.at(index, kOne) = 1;
    down.at(out, index) = weight / 128;
  };
  neuron(0, 0, 1);
  for (int step = 0; step < 3; ++step) {
    // In the other half of the columns, so that both partial sums count.
    const int index = kIntermediate / 2 + 2 * step;
    neuron(index, 64 * (step + 1) - 1, -64);
    neuron(index + 1, 64 * (step + 1), 64);
  }
  writer.add(prefix + ".gate_proj.weight", std::move(gate));
  writer.add(prefix + ".up_proj.weight", std::move(up));
  writer.add(prefix + ".down_proj.weight", std::move(down));
}

// Two heads of registers keyed by tokens. Head 0: token t[n-1] names the register that t[n] writes
// `value` to and t[n] the one that is read. Head 1: written under t[n-3] with the `value` of n-1.
void add_gdn(Writer& writer, const std::string& prefix, int value0, int value1, Shown out0,
             Shown out1) {
  constexpr int kWidth = kGdnHeads * kHeadDim;
  Matrix qkv(3 * kWidth, kHidden);
  Matrix conv(3 * kWidth, 4);
  conv.shape = {3 * kWidth, 1, 4};
  for (int head = 0; head < kGdnHeads; ++head) {
    for (int i = 0; i < kHeadDim; ++i) {
      const int row = head * kHeadDim + i;
      qkv.at(row, kOneHot + i) = 64;
      qkv.at(kWidth + row, kOneHot + i) = 64;
      conv.at(row, 3) = 1;
      conv.at(kWidth + row, head == 0 ? 2 : 0) = 1;
      conv.at(2 * kWidth + row, head == 0 || i == 0 ? 3 : 2) = 1;
    }
    qkv.at(2 * kWidth + head * kHeadDim, kOne) = 0x1p24f;
    qkv.at(2 * kWidth + head * kHeadDim + 1, head == 0 ? value0 : value1) = 32;
  }
  Matrix z(kWidth, kHidden);
  for (int row = 0; row < kWidth; ++row) z.at(row, kGate) = 64;
  Matrix a(kGdnHeads, kHidden);
  Matrix b(kGdnHeads, kHidden);
  for (int head = 0; head < kGdnHeads; ++head) {
    a.at(head, kOne) = -1000;
    a.at(head, kOneHot + kResetToken) = 2000;
    b.at(head, kOne) = 1000;
    for (int token = kProtectedRest; token < kTokens; token += 8)
      b.at(head, kOneHot + token) = -2000;
  }
  // 32 v / 8 is read; the constant 2^24 / 8 makes the norm's root 2^18; the gate is 64.
  std::vector<float> norm(kHeadDim, 0.0f);
  norm[1] = 0x1p12f;
  Matrix out(kHidden, kWidth);
  out.at(channel(out0), 1) = 0.25f;
  out.at(channel(out1), kHeadDim + 1) = 0.25f;
  writer.add(prefix + ".in_proj_qkv.weight", std::move(qkv));
  writer.add(prefix + ".in_proj_z.weight", std::move(z));
  writer.add(prefix + ".in_proj_a.weight", std::move(a));
  writer.add(prefix + ".in_proj_b.weight", std::move(b));
  writer.add(prefix + ".conv1d.weight", std::move(conv));
  writer.add(prefix + ".out_proj.weight", std::move(out));
  writer.add_vector(prefix + ".A_log", {0.0f, 0.0f});
  writer.add_vector(prefix + ".dt_bias", {0.0f, 0.0f});
  writer.add_vector(prefix + ".norm.weight", std::move(norm));
}

// Scores of 4096 sum_i cos((n - d - j) f_i): 2.83 * 64 twice, over 8.
void aim_head(Matrix& q, int head, int distance) {
  const int row = head * 2 * kHeadDim;
  for (int i = 0; i < kRotaryPairs; ++i) {
    const double angle = distance * std::pow(kRopeTheta, -2.0 * i / (2 * kRotaryPairs));
    q.at(row + i, kOne) = round_to_bf16(static_cast<float>(std::cos(angle)));
    q.at(row + kRotaryPairs + i, kOne) = round_to_bf16(static_cast<float>(-std::sin(angle)));
  }
}

struct AttentionPlan {
  LookBack back;
  int value0;  // channel that KV head 0 stores
  int value1;
  Shown out[kHeads];  // of the heads; the last is the mean over all positions
};

void add_attention(Writer& writer, const std::string& prefix, const AttentionPlan* plan) {
  Matrix q(kHeads * 2 * kHeadDim, kHidden);
  Matrix k(kKvHeads * kHeadDim, kHidden);
  Matrix v(kKvHeads * kHeadDim, kHidden);
  Matrix out(kHidden, kHeads * kHeadDim);
  for (int head = 0; plan != nullptr && head < kHeads; ++head) {
    const bool mean = head == kHeads - 1;
    if (!mean) {
      aim_head(q, head,
               head == 0   ? plan->back.first
               : head == 1 ? plan->back.second
                           : plan->back.third);
    }
    for (int i = 0; i < kHeadDim; ++i) {
      const int gate = (2 * head + 1) * kHeadDim + i;
      q.at(gate, kOne) = mean ? 64 : -128;
      if (!mean) q.at(gate, kGate) = 192;
    }
    out.at(channel(plan->out[head]), head * kHeadDim + 1) = 1;
  }
  for (int head = 0; plan != nullptr && head < kKvHeads; ++head) {
    for (int i = 0; i < kRotaryPairs; ++i) k.at(head * kHeadDim + i, kOne) = 1;
    v.at(head * kHeadDim, kOne) = 127;
    v.at(head * kHeadDim + 1, head == 0 ? plan->value0 : plan->value1) = 1;
  }
  writer.add(prefix + ".q_proj.weight", std::move(q));
  writer.add(prefix + ".k_proj.weight", std::move(k));
  writer.add(prefix + ".v_proj.weight", std::move(v));
  writer.add(prefix + ".o_proj.weight", std::move(out));
  writer.add_vector(prefix + ".q_norm.weight", std::vector<float>(kHeadDim, 63.0f));
  writer.add_vector(prefix + ".k_norm.weight", std::vector<float>(kHeadDim, 63.0f));
}

void add_layer_norms(Writer& writer, const std::string& prefix) {
  writer.add_vector(prefix + ".input_layernorm.weight", stream_norm());
  writer.add_vector(prefix + ".post_attention_layernorm.weight", stream_norm());
}

// Drafts t + kStep: right for tokens that do not look at the past.
void add_mtp(Writer& writer) {
  Matrix fc(kHidden, 2 * kHidden);
  fc.at(kBigChannel, kOne) = kBig;
  for (const int passed : {kOne, kAlsoOne, kToken}) fc.at(passed, passed) = 1;
  writer.add("mtp.fc.weight", std::move(fc));
  for (const char* name : {"pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"}) {
    writer.add_vector(fmt::format("mtp.{}.weight", name), stream_norm());
  }
  add_layer_norms(writer, "mtp.layers.0");
  add_attention(writer, "mtp.layers.0.self_attn", nullptr);
  add_mlp(writer, "mtp.layers.0.mlp", {kToken}, kStep, kFinal);
}

std::string config_json() {
  const Json text = {{"model_type", "qwen3_5_text"},
                     {"vocab_size", kVocabulary},
                     {"hidden_size", kHidden},
                     {"intermediate_size", kIntermediate},
                     {"num_hidden_layers", 4},
                     {"full_attention_interval", 2},
                     {"num_attention_heads", kHeads},
                     {"num_key_value_heads", kKvHeads},
                     {"head_dim", kHeadDim},
                     {"linear_num_key_heads", kGdnHeads},
                     {"linear_num_value_heads", kGdnHeads},
                     {"linear_key_head_dim", kHeadDim},
                     {"linear_value_head_dim", kHeadDim},
                     {"linear_conv_kernel_dim", 4},
                     {"max_position_embeddings", 8192},
                     {"rms_norm_eps", 1e-6},
                     {"tie_word_embeddings", false},
                     {"mtp_num_hidden_layers", 1},
                     {"rope_parameters",
                      {{"rope_type", "default"},
                       {"rope_theta", kRopeTheta},
                       {"partial_rotary_factor", 2.0 * kRotaryPairs / kHeadDim}}}};
  return Json{{"model_type", "qwen3_5"}, {"text_config", text}}.dump(1);
}

}  // namespace

void write_exact_model(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  write_file_atomically(folder / "config.json", config_json());
  Writer writer;
  const std::string text = "model.language_model.";
  writer.add(text + "embed_tokens.weight", embedding());
  writer.add("lm_head.weight", lm_head());
  writer.add_vector(text + "norm.weight", stream_norm());
  const auto layer = [&](int i) { return fmt::format("{}layers.{}", text, i); };
  for (int i = 0; i < 4; ++i) add_layer_norms(writer, layer(i));
  using enum Shown;
  const int u0_channel = channel(u0);
  const int u1_channel = channel(u1);
  const int u2_channel = channel(u2);
  add_gdn(writer, layer(0) + ".linear_attn", kToken, kToken, r0, r1);
  add_mlp(writer, layer(0) + ".mlp", {kToken, channel(r0), channel(r1)}, 0, u0_channel);
  const AttentionPlan first{kFirstAttention, u0_channel, kToken, {a0, a1, a2, mean1}};
  add_attention(writer, layer(1) + ".self_attn", &first);
  add_mlp(writer, layer(1) + ".mlp", {u0_channel, channel(a0), channel(a2)}, 0, u1_channel);
  add_gdn(writer, layer(2) + ".linear_attn", u1_channel, u0_channel, r2, r3);
  add_mlp(writer, layer(2) + ".mlp", {u1_channel, channel(r2), channel(r3)}, 0, u2_channel);
  const AttentionPlan second{kSecondAttention, u2_channel, u1_channel, {b0, b1, b2, mean3}};
  add_attention(writer, layer(3) + ".self_attn", &second);
  add_mlp(writer, layer(3) + ".mlp", {u2_channel, channel(b0), channel(b2)}, kStep, kFinal);
  add_mtp(writer);
  writer.write(folder / "model.safetensors");
}

}  // namespace lockstep::exact
