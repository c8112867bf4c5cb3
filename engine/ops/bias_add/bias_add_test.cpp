#include "engine/ops/bias_add/bias_add.h"

#include <gtest/gtest.h>

#include "engine/ops/common/op_test_util.h"

namespace lockstep {
namespace {

using namespace op_test;

TEST(BiasAdd, AddsTheBiasOfItsColumnWithOneRounding) {
  for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
    for (const int n_threads : {1, 2}) {
      ThreadPool pool(n_threads);
      const std::vector<float> x = random_floats(1, 700 * 67, 4.0f);
      const std::vector<float> bias = random_floats(2, 67, 1.0f);
      std::vector<float> out = x;
      bias_add(out.data(), bias.data(), 700, 67, rounding, pool);
      for (size_t i = 0; i < x.size(); ++i) {
        const float sum = x[i] + bias[i % 67];
        ASSERT_EQ(out[i], rounding == Rounding::bf16 ? round_to_bf16(sum) : sum) << i;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
