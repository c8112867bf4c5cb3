#include "engine/ops/common/cuda/rows_exact.h"

#include "engine/base/float_formats.h"
#include "engine/base/philox.h"
#include "engine/ops/argmax/argmax.h"
#include "engine/ops/attention/kv_view.h"
#include "engine/ops/bias_add/bias_add.h"
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

std::vector<float> draw(PhiloxStream& random, int64_t n, float scale, bool bf16) {
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) {
    value = scale * (2.0f * random.next_uniform() - 1.0f);
    if (bf16) value = round_to_bf16(value);
  }
  return values;
}

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

std::vector<float> kv_write_host(const RowsProblem& p) {
  std::vector<std::byte> memory(
      static_cast<size_t>(2 * kv_page_bytes(KvType::int8, kRowsKvHeads, kHeadDim)));
  const uint32_t pages[2] = {1, 0};
  const int64_t stride = p.width;
  kv_write({{KvType::int8, kRowsKvHeads, kHeadDim, memory.data(), pages},
            p.x.data(),
            p.y.data(),
            stride,
            stride,
            kRowsFirst,
            p.n_rows});
  std::vector<float> bytes;
  for (const std::byte b : memory) bytes.push_back(static_cast<float>(b));
  return bytes;
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

}  // namespace

RowsProblem rows_problem(RowsOp op, uint64_t seed) {
  PhiloxStream random(seed, 3);
  const bool product = op == RowsOp::bias_add || op == RowsOp::gelu;  // x is not rounded yet
  RowsProblem p;
  p.n_rows = 33;
  p.width = op == RowsOp::kv_write || op == RowsOp::rope ? kRowsKvHeads * kHeadDim
            : op == RowsOp::argmax                       ? 5000
                                                         : 256;
  p.x = draw(random, p.n_rows * p.width, 3.0f, !product);
  p.y = draw(random, p.n_rows * p.width, 3.0f, true);
  p.weight = draw(random, p.width, 1.0f, false);
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

std::vector<float> rows_exact_host(RowsOp op, uint64_t seed) {
  RowsProblem p = rows_problem(op, seed);
  ThreadPool pool(1);
  std::vector<float> out(p.x.size());
  switch (op) {
    case RowsOp::argmax:
      return argmax_host(p);
    case RowsOp::embedding:
      return embedding_host(p);
    case RowsOp::kv_write:
      return kv_write_host(p);
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

}  // namespace lockstep
