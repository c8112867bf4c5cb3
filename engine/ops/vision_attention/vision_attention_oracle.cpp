#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/ops/common/tolerance.h"
#include "engine/ops/vision_attention/vision_attention.h"

namespace lockstep {
namespace {

struct Row {
  std::vector<double> weights;  // normalised
  double score_error = 0.0;     // largest absolute error of a score
  double score_range = 0.0;     // largest minus smallest score
};

Row softmax_row(const VisionAttentionArgs& args, const float* q, int head) {
  Row row;
  double largest = -INFINITY;
  double smallest = INFINITY;
  for (int64_t k = 0; k < args.n_tokens; ++k) {
    const float* key = args.k + k * args.token_stride + int64_t{head} * args.head_dim;
    double score = 0.0;
    double condition = 0.0;
    for (int d = 0; d < args.head_dim; ++d) {
      score += double{q[d]} * double{key[d]};
      condition += std::fabs(double{q[d]} * double{key[d]});
    }
    row.weights.push_back(score * double{args.scale});
    row.score_error = std::max(row.score_error, tolerance::attention_score_error(
                                                    args.head_dim, condition * double{args.scale}));
    largest = std::max(largest, row.weights.back());
    smallest = std::min(smallest, row.weights.back());
  }
  row.score_range = largest - smallest;
  double sum = 0.0;
  for (double& weight : row.weights) sum += weight = std::exp(weight - largest);
  for (double& weight : row.weights) weight /= sum;
  return row;
}

}  // namespace

void vision_attention_oracle(const VisionAttentionArgs& args, double* value, double* error) {
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    for (int head = 0; head < args.n_heads; ++head) {
      const int64_t offset = int64_t{head} * args.head_dim;
      const Row row = softmax_row(args, args.q + t * args.token_stride + offset, head);
      for (int d = 0; d < args.head_dim; ++d) {
        double sum = 0.0;
        double magnitude = 0.0;
        for (int64_t k = 0; k < args.n_tokens; ++k) {
          const double product = row.weights[static_cast<size_t>(k)] *
                                 double{args.v[k * args.token_stride + offset + d]};
          sum += product;
          magnitude += std::fabs(product);
        }
        const int64_t at = (t * args.n_heads + head) * args.head_dim + d;
        value[at] = sum;
        error[at] = tolerance::vision_attention_error(args.n_tokens, row.score_error,
                                                      row.score_range, magnitude, std::fabs(sum));
      }
    }
  }
}

}  // namespace lockstep
