#include "engine/ops/common/cuda/rows_exact.h"

#include "engine/ops/argmax/argmax.h"
#include "engine/ops/attention/kv_view.h"
#include "engine/ops/bias_add/bias_add.h"
#include "engine/ops/common/exact_values.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/gelu/gelu.h"
#include "engine/ops/hadamard/hadamard.h"
#include "engine/ops/kv_write/kv_write.h"
#include "engine/ops/residual_add/residual_add.h"
#include "engine/ops/rmsnorm/rmsnorm.h"
#include "engine/ops/swiglu/swiglu.h"

namespace lockstep {
namespace {

constexpr int kHeadDim = 256;
constexpr uint32_t kLevels = 997;  // of logits: fewer than columns, so that the largest is a tie

std::vector<float> argmax_host(const RowsProblem& p) {
  std::vector<float> best;
  for (int64_t r = 0; r < p.n_rows; ++r) {
    best.push_back(static_cast<float>(argmax(p.x.data() + r * p.width, p.width)));
  }
  return best;
}

std::vector<float> embedding_host(const RowsProblem& p) {
  std::vector<uint16_t> table;
  for (const float value : p.x) table.push_back(float_to_bf16(value));
  WeightMatrix matrix;
  matrix.codec = Codec::bf16;
  matrix.n_rows = p.n_rows;
  matrix.n_cols = p.width;
  matrix.codes = reinterpret_cast<const std::byte*>(table.data());
  matrix.row_bytes = 2 * p.width;
  std::vector<float> out(p.ids.size() * static_cast<size_t>(p.width));
  embedding(matrix, p.ids.data(), static_cast<int64_t>(p.ids.size()), Rounding::bf16, out.data());
  return out;
}

// The bytes of two pages that hold these keys and values.
std::vector<float> pages_host(const std::vector<float>& k, const std::vector<float>& v,
                              int64_t n_rows) {
  std::vector<std::byte> memory(
      static_cast<size_t>(2 * kv_page_bytes(KvType::int8, kRowsKvHeads, kHeadDim)));
  const uint32_t pages[2] = {1, 0};
  constexpr int64_t kStride = int64_t{kRowsKvHeads} * kHeadDim;
  kv_write({{KvType::int8, kRowsKvHeads, kHeadDim, memory.data(), pages},
            k.data(),
            v.data(),
            kStride,
            kStride,
            kRowsFirst,
            n_rows});
  std::vector<float> bytes;
  for (const std::byte b : memory) bytes.push_back(static_cast<float>(b));
  return bytes;
}

// Norm, rotation and transform of heads that lie `stride` apart.
std::vector<float> prepared_host(const RowsProblem& p, const std::vector<float>& x, int64_t stride,
                                 const float* norm, int n_heads, ThreadPool& pool) {
  std::vector<float> out(static_cast<size_t>(p.n_rows * n_heads * kHeadDim));
  const int64_t n = p.n_rows * n_heads;
  rmsnorm(
      {x.data(), stride, norm, out.data(), kHeadDim, n, kHeadDim, kRowsEps, 1.0f, Rounding::bf16},
      pool);
  const std::vector<float> inv_freq = rope_inverse_frequencies(1e7, kRowsRotary);
  rope({out.data(), int64_t{n_heads} * kHeadDim, p.positions.data(), inv_freq.data(), p.n_rows,
        n_heads, kHeadDim, kRowsRotary, Rounding::bf16},
       pool);
  hadamard(out.data(), kHeadDim, n, kHeadDim, Rounding::bf16, pool);
  return out;
}

std::vector<float> heads_host(const RowsProblem& p, ThreadPool& pool) {
  const float* norm = p.weight.data();
  std::vector<float> out = prepared_host(p, p.x, int64_t{2} * kHeadDim, norm, kRowsHeads, pool);
  const std::vector<float> k =
      prepared_host(p, rows_keys(p), kHeadDim, norm + kHeadDim, kRowsKvHeads, pool);
  const std::vector<float> bytes = pages_host(k, rows_values(p), p.n_rows);
  out.insert(out.end(), bytes.begin(), bytes.end());
  return out;
}

std::vector<float> rope_host(RowsProblem p, ThreadPool& pool) {
  const std::vector<float> inv_freq = rope_inverse_frequencies(1e7, kRowsRotary);
  rope({p.x.data(), p.width, p.positions.data(), inv_freq.data(), p.n_rows, kRowsKvHeads, kHeadDim,
        kRowsRotary, Rounding::bf16},
       pool);
  return p.x;
}

// What works on x in place.
std::vector<float> in_place_host(RowsOp op, RowsProblem p, ThreadPool& pool) {
  if (op == RowsOp::residual_add) {
    residual_add(p.x.data(), p.y.data(), static_cast<int64_t>(p.x.size()), Rounding::bf16);
  } else if (op == RowsOp::hadamard) {
    hadamard(p.x.data(), p.width, p.n_rows, static_cast<int>(p.width), Rounding::bf16, pool);
  } else {
    bias_add(p.x.data(), p.weight.data(), p.n_rows, p.width, Rounding::bf16, pool);
  }
  if (op == RowsOp::gelu) {
    gelu(p.x.data(), static_cast<int64_t>(p.x.size()), GeluKind::exact, Rounding::bf16, pool);
  }
  return p.x;
}

std::vector<float> host_answer(RowsOp op, uint64_t seed) {
  RowsProblem p = rows_problem(op, seed);
  ThreadPool pool(1);
  std::vector<float> out(p.x.size());
  switch (op) {
    case RowsOp::argmax:
      return argmax_host(p);
    case RowsOp::embedding:
      return embedding_host(p);
    case RowsOp::kv_write:
      return pages_host(p.x, p.y, p.n_rows);
    case RowsOp::prepare_heads:
      return heads_host(p, pool);
    case RowsOp::rope:
      return rope_host(std::move(p), pool);
    case RowsOp::rmsnorm:
      rmsnorm({p.x.data(), p.width, p.weight.data(), out.data(), p.width, p.n_rows, p.width,
               kRowsEps, 1.0f, Rounding::bf16},
              pool);
      return out;
    case RowsOp::swiglu:
      swiglu({p.x.data(), p.width, p.y.data(), p.width, out.data(), p.width, p.n_rows, p.width,
              Rounding::bf16},
             pool);
      return out;
    default:
      return in_place_host(op, std::move(p), pool);
  }
}

}  // namespace

RowsProblem rows_problem(RowsOp op, uint64_t seed) {
  PhiloxStream random(seed, 3);
  const bool product = op == RowsOp::bias_add || op == RowsOp::gelu;  // x is not rounded yet
  RowsProblem p;
  p.n_rows = 33;
  p.width = op == RowsOp::kv_write || op == RowsOp::rope ? kRowsKvHeads * kHeadDim
            : op == RowsOp::prepare_heads                ? kRowsHeads * 2 * kHeadDim
            : op == RowsOp::argmax                       ? 5000
                                                         : 256;
  p.x = exact_floats(random, p.n_rows * p.width, 3.0f, !product);
  p.y = exact_floats(random, p.n_rows * p.width, 3.0f, true);
  p.weight = exact_floats(random, p.width, 1.0f, false);
  for (int i = 0; i < 50; ++i) {
    p.ids.push_back(static_cast<int32_t>(random.next_below(static_cast<uint32_t>(p.n_rows))));
  }
  for (int64_t r = 0; r < p.n_rows; ++r) {
    RopePosition position;
    for (int32_t& axis : position) axis = static_cast<int32_t>(random.next_below(1u << 18));
    p.positions.push_back(position);
  }
  if (op == RowsOp::argmax) {
    for (float& value : p.x) value = static_cast<float>(random.next_below(kLevels));
  }
  return p;
}

std::vector<float> rows_keys(const RowsProblem& p) {
  return {p.y.begin(), p.y.begin() + p.n_rows * kRowsKvHeads * kHeadDim};
}

std::vector<float> rows_values(const RowsProblem& p) {
  const int64_t n = p.n_rows * kRowsKvHeads * kHeadDim;
  return {p.y.begin() + n, p.y.begin() + 2 * n};
}

std::vector<ExactCase> rows_exact_cases(RowsOp op) {
  return {{"the CPU's bits", 70, [op](uint64_t seed) { return host_answer(op, seed); }}};
}

}  // namespace lockstep
