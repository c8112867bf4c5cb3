// Cases for receipts (exact_case.h) of the row ops whose kernels give the CPU's bits: random values
// instead of integers, and the CPU op is the formula.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/ops/common/exact_case.h"
#include "engine/ops/rope/rope.h"

namespace lockstep {

// Inputs of one case: what an op does not need stays empty. bfloat16 values as float32.
struct RowsProblem {
  int64_t n_rows = 0;
  int64_t width = 0;
  std::vector<float> x;
  std::vector<float> y;
  std::vector<float> weight;  // float32
  std::vector<int32_t> ids;
  std::vector<RopePosition> positions;
};

enum class RowsOp : uint8_t {
  argmax,
  bias_add,
  embedding,
  gelu,
  hadamard,
  kv_write,
  prepare_heads,
  residual_add,
  rmsnorm,
  rope,
  swiglu
};

inline constexpr int kRowsKvHeads = 2;     // kv_write, prepare_heads, rope
inline constexpr int kRowsHeads = 6;       // prepare_heads: queries, each with its gate beside it
inline constexpr int kRowsRotary = 64;     // prepare_heads, rope
inline constexpr float kRowsEps = 1e-6f;   // prepare_heads, rmsnorm
inline constexpr int64_t kRowsFirst = 61;  // prepare_heads, kv_write: just before a page's end

RowsProblem rows_problem(RowsOp op, uint64_t seed);

// Keys and values of prepare_heads: the two halves of y, [rows, KV heads, 256] each.
std::vector<float> rows_keys(const RowsProblem& p);
std::vector<float> rows_values(const RowsProblem& p);

std::vector<ExactCase> rows_exact_cases(RowsOp op);  // one

// CUDA builds alone. The answer to rows_exact_cases(op)[index].
std::vector<float> rows_exact_card(RowsOp op, size_t index, uint64_t seed, Device& device,
                                   Stream& stream);

// The folder of the op, and its one case.
struct RowsExactOp {
  RowsOp op;
  const char* folder;
};
inline constexpr std::array<RowsExactOp, 11> kRowsExactOps = {{
    {RowsOp::argmax, "argmax"},
    {RowsOp::bias_add, "bias_add"},
    {RowsOp::embedding, "embedding"},
    {RowsOp::gelu, "gelu"},
    {RowsOp::hadamard, "hadamard"},
    {RowsOp::kv_write, "kv_write"},
    {RowsOp::prepare_heads, "prepare_heads"},
    {RowsOp::residual_add, "residual_add"},
    {RowsOp::rmsnorm, "rmsnorm"},
    {RowsOp::rope, "rope"},
    {RowsOp::swiglu, "swiglu"},
}};

}  // namespace lockstep
