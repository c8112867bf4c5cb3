// Element-wise ops on a card: the CPU's bits.
#include "engine/ops/swiglu/cuda/swiglu_cuda.h"

#include "engine/ops/bias_add/bias_add.h"
#include "engine/ops/bias_add/cuda/bias_add_cuda.h"
#include "engine/ops/common/cuda/row_test_util.h"
#include "engine/ops/gelu/cuda/gelu_cuda.h"
#include "engine/ops/residual_add/residual_add.h"
#include "engine/ops/swiglu/swiglu.h"

namespace lockstep {
namespace {

using namespace op_test;

class ElementwiseCuda : public testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_CARD(); }
};

void check_swiglu(const std::vector<uint16_t>& gate, const std::vector<uint16_t>& up,
                  int64_t n_tokens, int64_t width) {
  ThreadPool pool(1);
  const int64_t stride = width + 8;
  const std::vector<float> gate_floats = floats_of_bf16(gate);
  const std::vector<float> up_floats = floats_of_bf16(up);
  std::vector<float> want(gate.size());
  swiglu({gate_floats.data(), width, up_floats.data(), width, want.data(), width, n_tokens, width,
          Rounding::bf16},
         pool);
  const GuardedBytes gate_card(padded_rows(gate, n_tokens, width, stride));
  const GuardedBytes up_card(padded_rows(up, n_tokens, width, stride));
  const GuardedBytes out(n_tokens * stride * 2);
  swiglu_cuda({gate_card.as<uint16_t>(), stride, up_card.as<uint16_t>(), stride, out.as<uint16_t>(),
               stride, n_tokens, width},
              card_stream());
  EXPECT_TRUE(out.walls_intact());
  expect_same_bf16(dense_rows(out.values<uint16_t>(), n_tokens, width, stride), want,
                   "swiglu " + std::to_string(n_tokens) + " x " + std::to_string(width));
}

TEST_F(ElementwiseCuda, SwigluHasTheBitsOfTheCpu) {
  check_swiglu(every_bf16(), bf16_of_floats(random_floats(1, 65536, 8.0f)), 16, 4096);
  for (const int64_t width : {8, 1016, 1024, 1032, 8704}) {
    for (const int64_t n_tokens : {1, 3}) {
      check_swiglu(bf16_of_floats(random_floats(2, n_tokens * width, 10.0f)),
                   bf16_of_floats(random_floats(3, n_tokens * width, 4.0f)), n_tokens, width);
    }
  }
}

TEST_F(ElementwiseCuda, GeluHasTheBitsOfTheCpu) {
  ThreadPool pool(1);
  for (const GeluKind kind : {GeluKind::exact, GeluKind::tanh}) {
    for (const size_t n : {size_t{1}, size_t{1023}, size_t{1024}, size_t{1031}, size_t{65536}}) {
      std::vector<uint16_t> bits = every_bf16();
      // Ordinary values first, so that short arrays hold some.
      std::rotate(bits.begin(), bits.begin() + 0x3e00, bits.end());
      bits.resize(n);
      std::vector<float> want = floats_of_bf16(bits);
      gelu(want.data(), static_cast<int64_t>(n), kind, Rounding::bf16, pool);
      const GuardedBytes x(bits);
      gelu_cuda(x.as<uint16_t>(), static_cast<int64_t>(n), kind, card_stream());
      EXPECT_TRUE(x.walls_intact());
      expect_same_bf16(x.values<uint16_t>(), want,
                       kind == GeluKind::exact ? "gelu exact" : "gelu tanh");
    }
  }
}

// The CPU ops one after the other.
std::vector<float> biased(const std::vector<float>& x, const std::vector<float>& bias,
                          const std::vector<float>& base, int64_t n_rows, AfterBias after) {
  ThreadPool pool(1);
  std::vector<float> s = x;
  const auto n = static_cast<int64_t>(s.size());
  bias_add(s.data(), bias.data(), n_rows, n / n_rows, Rounding::bf16, pool);
  if (after == AfterBias::gelu_exact) gelu(s.data(), n, GeluKind::exact, Rounding::bf16, pool);
  if (after == AfterBias::gelu_tanh) gelu(s.data(), n, GeluKind::tanh, Rounding::bf16, pool);
  if (after != AfterBias::residual) return s;
  std::vector<float> sum = base;
  residual_add(sum.data(), s.data(), n, Rounding::bf16);
  return sum;
}

TEST_F(ElementwiseCuda, BiasAndWhatFollowsHaveTheBitsOfTheCpu) {
  for (const int64_t width : {8, 1152, 4304}) {
    for (const AfterBias after :
         {AfterBias::store, AfterBias::gelu_exact, AfterBias::gelu_tanh, AfterBias::residual}) {
      constexpr int64_t kRows = 5;
      const std::vector<float> x = random_floats(1, kRows * width, 4.0f);
      const std::vector<float> bias = random_floats(2, width, 1.0f);
      const std::vector<float> base = random_floats(3, kRows * width, 4.0f, Rounding::bf16);
      const GuardedBytes x_card(x);
      const GuardedBytes bias_card(bias);
      const GuardedBytes out = after == AfterBias::residual ? GuardedBytes(bf16_of_floats(base))
                                                            : GuardedBytes(kRows * width * 2);
      bias_add_cuda(
          {x_card.as<float>(), bias_card.as<float>(), out.as<uint16_t>(), kRows, width, after},
          card_stream());
      EXPECT_TRUE(out.walls_intact());
      expect_same_bf16(out.values<uint16_t>(), biased(x, bias, base, kRows, after),
                       "bias, then " + std::to_string(static_cast<int>(after)));
    }
  }
}

}  // namespace
}  // namespace lockstep
