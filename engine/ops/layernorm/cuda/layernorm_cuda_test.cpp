#include "engine/ops/layernorm/cuda/layernorm_cuda.h"

#include "engine/ops/common/cuda/row_test_util.h"
#include "engine/ops/common/tolerance.h"
#include "engine/ops/layernorm/layernorm.h"

namespace lockstep {
namespace {

using namespace op_test;

struct Rows {
  Rows(int64_t n, int w, float shift)
      : n_rows(n),
        width(w),
        x(random_floats(1, n * w, 2.0f)),
        weight(random_floats(2, w, 1.0f)),
        bias(random_floats(3, w, 1.0f)) {
    for (float& value : x) value = round_to_bf16(value + shift);
  }
  int64_t n_rows;
  int width;
  std::vector<float> x;
  std::vector<float> weight;
  std::vector<float> bias;
};

std::vector<uint16_t> run(const Rows& rows) {
  const GuardedBytes x(bf16_of_floats(rows.x));
  const GuardedBytes weight(rows.weight);
  const GuardedBytes bias(rows.bias);
  const GuardedBytes out(static_cast<int64_t>(rows.x.size()) * 2);
  layernorm_cuda({x.as<uint16_t>(), weight.as<float>(), bias.as<float>(), out.as<uint16_t>(),
                  rows.n_rows, rows.width, 1e-6f},
                 card_stream());
  EXPECT_TRUE(out.walls_intact());
  return out.values<uint16_t>();
}

class LayerNormCuda : public testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_CARD(); }
};

TEST_F(LayerNormCuda, StaysWithinTheBoundAtEveryBorder) {
  for (const int width : {16, 128, 240, 256, 272, 1152, 4080, 4096, 4112, 4608, 8192}) {
    for (const float shift : {0.0f, 20.0f}) {
      const Rows rows(3, width, shift);
      const std::vector<uint16_t> out = run(rows);
      std::vector<double> value(rows.x.size());
      std::vector<double> error(rows.x.size());
      layernorm_oracle({rows.x.data(), rows.weight.data(), rows.bias.data(), nullptr, rows.n_rows,
                        width, 1e-6f, Rounding::bf16},
                       value.data(), error.data());
      for (size_t i = 0; i < value.size(); ++i) {
        const double bound = tolerance::with_output_rounding(
            value[i], error[i] * tolerance::layernorm_cuda_factor(width), Rounding::bf16);
        ASSERT_LE(std::fabs(bf16_to_float(out[i]) - value[i]), bound)
            << "width " << width << ", shift " << shift << " at " << i;
      }
    }
  }
}

// Two values in turn: their mean, deviation and quotients are exact in any order.
TEST_F(LayerNormCuda, TwoValuesInTurnAreExact) {
  for (const int width : {1152, 4608}) {
    Rows rows(2, width, 0.0f);
    for (size_t i = 0; i < rows.x.size(); ++i) rows.x[i] = i % 2 == 0 ? 3.0f : 7.0f;
    std::fill(rows.weight.begin(), rows.weight.end(), 1.0f);
    std::fill(rows.bias.begin(), rows.bias.end(), 2.0f);
    const std::vector<uint16_t> out = run(rows);
    // The deviation is sqrt(4 + 1e-6): its quotients round to one in bfloat16.
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(bf16_to_float(out[i]), i % 2 == 0 ? 1.0f : 3.0f) << i;
    }
  }
}

TEST_F(LayerNormCuda, ARowsBitsDependOnThatRowAlone) {
  const Rows rows(20, 1152, 1.0f);
  const std::vector<uint16_t> all = run(rows);
  EXPECT_EQ(run(rows), all);
  for (const int64_t row : {0, 19}) {
    Rows one(1, 1152, 1.0f);
    one.x.assign(rows.x.begin() + row * 1152, rows.x.begin() + (row + 1) * 1152);
    EXPECT_EQ(run(one),
              std::vector<uint16_t>(all.begin() + row * 1152, all.begin() + (row + 1) * 1152));
  }
}

}  // namespace
}  // namespace lockstep
