#include "engine/rank/cuda/card_weights.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <span>

#include "engine/base/error.h"
#include "engine/ops/linear/cuda/linear_cuda.h"
#include "engine/ops/linear/cuda/linear_pack.h"

namespace lockstep {
namespace {

std::vector<std::byte> copied(const std::byte* from, int64_t n_bytes) {
  return {from, from + n_bytes};
}

// Halves of K go into one launch.
void require_halves(const std::string& name, const CardPieces& halves) {
  if (halves.size() == 1) return;
  if (halves.size() == 2 && multiply_as_halves(halves[0].plan, halves[1].plan)) return;
  fail("{}: no CUDA route multiplies {} parts of K that are no two halves", name, halves.size());
}

bool are_pairs(const CardPieces& gates, const CardPieces& ups) {
  return std::equal(gates.begin(), gates.end(), ups.begin(), ups.end(),
                    [](const CardMatrix& gate, const CardMatrix& up) {
                      return multiply_as_halves(gate.plan, up.plan);
                    });
}

}  // namespace

void CardUpload::add(const std::string& name, const MatrixPieces& matrices, CardPieces& target) {
  target.resize(matrices.size());
  for (size_t i = 0; i < matrices.size(); ++i) {
    const WeightMatrix& matrix = matrices[i];
    const std::string label = fmt::format("{}, part {} of {}", name, i + 1, matrices.size());
    CardMatrix& placed = target[i];
    placed.plan = plan_linear_cuda(matrix.codec, matrix.n_rows, matrix.n_cols, matrix.group,
                                   family_of_card(facts_), facts_.block_shared_bytes, label);
    plans_.push_back(placed.plan);
    entries_.push_back(
        {plan_.add(label, placed.plan.weight_bytes), placed.plan.weight_bytes,
         [matrix, &placed, label] { return pack_linear(matrix, placed.plan, false, label); },
         [&placed](const std::byte* at) { placed.bytes = at; }});
  }
}

void CardUpload::add(const std::string& name, const std::vector<float>& values,
                     const float*& target) {
  const auto bytes = std::as_bytes(std::span(values));
  const auto n_bytes = static_cast<int64_t>(bytes.size());
  entries_.push_back(
      {plan_.add(name, n_bytes), n_bytes,
       [bytes, n_bytes] { return copied(bytes.data(), n_bytes); },
       [&target](const std::byte* at) { target = reinterpret_cast<const float*>(at); }});
}

void CardUpload::add_embedding(const WeightMatrix& table, WeightMatrix& target) {
  if (table.codec != Codec::bf16 && table.codec != Codec::f16 && table.codec != Codec::f32) {
    fail("embed_tokens: no CUDA kernel is registered for an embedding in {}",
         codec_name(table.codec));
  }
  target = table;
  const int64_t n_bytes = table.n_rows * table.row_bytes;
  entries_.push_back({plan_.add("embed_tokens", n_bytes), n_bytes,
                      [table, n_bytes] { return copied(table.codes, n_bytes); },
                      [&target](const std::byte* at) { target.codes = at; }});
}

void CardUpload::add_layer(const std::string& name, const LayerWeights& weights,
                           CardLayer& target) {
  target.kind = weights.kind;
  add(name + ".input_layernorm", weights.input_norm, target.input_norm);
  add(name + ".post_attention_layernorm", weights.post_attention_norm, target.post_attention_norm);
  if (weights.kind == LayerKind::full_attention) {
    const AttentionWeights& attention = weights.attention;
    add(name + ".self_attn.q_proj", attention.q_proj, target.q_proj);
    add(name + ".self_attn.k_proj", attention.k_proj, target.k_proj);
    add(name + ".self_attn.v_proj", attention.v_proj, target.v_proj);
    add(name + ".self_attn.o_proj", attention.o_proj, target.o_proj);
    require_halves(name + ".self_attn.o_proj", target.o_proj);
    add(name + ".self_attn.q_norm", attention.q_norm, target.q_norm);
    add(name + ".self_attn.k_norm", attention.k_norm, target.k_norm);
  } else {
    const GdnWeights& gdn = weights.gdn;
    add(name + ".linear_attn.in_proj_qkv", gdn.in_proj_qkv, target.in_proj_qkv);
    add(name + ".linear_attn.in_proj_z", gdn.in_proj_z, target.in_proj_z);
    add(name + ".linear_attn.in_proj_a", gdn.in_proj_a, target.in_proj_a);
    add(name + ".linear_attn.in_proj_b", gdn.in_proj_b, target.in_proj_b);
    add(name + ".linear_attn.out_proj", gdn.out_proj, target.out_proj);
    require_halves(name + ".linear_attn.out_proj", target.out_proj);
    add(name + ".linear_attn.conv1d", gdn.conv, target.conv);
    add(name + ".linear_attn.A_log", gdn.a_log, target.a_log);
    add(name + ".linear_attn.dt_bias", gdn.dt_bias, target.dt_bias);
    add(name + ".linear_attn.norm", gdn.norm, target.norm);
  }
  add(name + ".mlp.gate_proj", weights.mlp.gate_proj, target.gate_proj);
  add(name + ".mlp.up_proj", weights.mlp.up_proj, target.up_proj);
  add(name + ".mlp.down_proj", weights.mlp.down_proj, target.down_proj);
  require_halves(name + ".mlp.down_proj", target.down_proj);
  target.gates_in_pairs = are_pairs(target.gate_proj, target.up_proj);
}

void CardUpload::add(const RankWeights& weights, CardWeights& target) {
  add_embedding(weights.embedding, target.embedding);
  add("norm", weights.final_norm, target.final_norm);
  add("lm_head", weights.lm_head, target.lm_head);
  target.layers.resize(weights.layers.size());
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    add_layer(fmt::format("layers.{}", i), weights.layers[i], target.layers[i]);
  }
  if (weights.mtp == nullptr) return;
  const MtpWeights& mtp = *weights.mtp;
  add("mtp.pre_fc_norm_embedding", mtp.embedding_norm, target.mtp.embedding_norm);
  add("mtp.pre_fc_norm_hidden", mtp.hidden_norm, target.mtp.hidden_norm);
  add("mtp.norm", mtp.norm, target.mtp.norm);
  add("mtp.fc", {mtp.fc}, target.mtp.fc);
  add_layer("mtp.layers.0", mtp.layer, target.mtp.layer);
}

int64_t CardUpload::prepared_bytes(int64_t n_tokens) const {
  int64_t most = 0;
  for (const LinearCudaPlan& plan : plans_) {
    most = std::max(most, linear_prepared_bytes(plan, n_tokens));
  }
  return most;
}

void CardUpload::upload(const Arena& arena, Device& device, Stream& stream, ThreadPool& pool) {
  // The largest first, so that none is left when all others are done.
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.n_bytes > b.n_bytes; });
  std::atomic<size_t> next{0};
  std::mutex one_copies;
  std::exception_ptr error;
  const auto place = [&](const Entry& entry) {
    const std::vector<std::byte> packed = entry.pack();
    LOCKSTEP_CHECK(static_cast<int64_t>(packed.size()) == entry.n_bytes);
    const std::lock_guard lock(one_copies);
    device.make_current();
    stream.copy_in(arena.at(entry.block), packed.data(), entry.n_bytes);
    stream.synchronize();
    entry.place(arena.at(entry.block));
  };
  pool.parallel_for(pool.n_threads(), 1, [&](int64_t, int64_t) {
    for (size_t i = next++; i < entries_.size(); i = next++) {
      try {
        place(entries_[i]);
      } catch (const Error&) {
        const std::lock_guard lock(one_copies);
        error = std::current_exception();
        next = entries_.size();
      }
    }
  });
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace lockstep
