#include "engine/ops/weighted_embedding/weighted_embedding.h"

#include <cmath>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"

namespace lockstep {
namespace {

void sum_rows(const WeightedEmbeddingArgs& args, int64_t t) {
  const WeightedRows& source = args.sources[t];
  const float* rows[4];
  for (size_t j = 0; j < 4; ++j) {
    LOCKSTEP_CHECK(source.rows[j] >= 0 && source.rows[j] < args.n_rows);
    rows[j] = args.table + source.rows[j] * args.width;
  }
  float* out = args.out + t * args.width;
  for (int64_t i = 0; i < args.width; ++i) {
    float sum = source.weights[0] * rows[0][i];
    for (size_t j = 1; j < 4; ++j) sum = std::fma(source.weights[j], rows[j][i], sum);
    out[i] = args.rounding == Rounding::bf16 ? round_to_bf16(sum) : sum;
  }
}

}  // namespace

void weighted_embedding(const WeightedEmbeddingArgs& args, ThreadPool& pool) {
  pool.parallel_for(args.n_tokens, 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) sum_rows(args, t);
  });
}

void weighted_embedding_oracle(const WeightedEmbeddingArgs& args, double* value,
                               double* condition) {
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    for (int64_t i = 0; i < args.width; ++i) {
      double sum = 0.0;
      double magnitude = 0.0;
      for (size_t j = 0; j < 4; ++j) {
        const float* row = args.table + args.sources[t].rows[j] * args.width;
        const double product = double{args.sources[t].weights[j]} * double{row[i]};
        sum += product;
        magnitude += std::fabs(product);
      }
      value[t * args.width + i] = sum;
      condition[t * args.width + i] = magnitude;
    }
  }
}

}  // namespace lockstep
