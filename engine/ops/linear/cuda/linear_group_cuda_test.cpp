// Several matrices in one launch, a product that gates another, and halves of K: the bits of the
// launches one by one.
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "engine/ops/common/cuda/family_test_util.h"
#include "engine/ops/linear/cuda/linear_cuda_test_util.h"
#include "engine/ops/linear/linear_test_matrix.h"
#include "engine/ops/swiglu/cuda/swiglu_cuda.h"

namespace lockstep {
namespace {

using namespace linear_test;

class LinearGroupCuda : public testing::TestWithParam<LinearRoute> {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_FAMILY(GetParam().family); }
  Codec codec() const { return GetParam().codec; }
  KernelFamily family() const { return GetParam().family; }
};

INSTANTIATE_TEST_SUITE_P(Routes, LinearGroupCuda,
                         testing::ValuesIn(linear_routes().begin(), linear_routes().end()),
                         [](const testing::TestParamInfo<LinearRoute>& test) {
                           return std::string(family_name(test.param.family)) + "_" +
                                  std::string(codec_name(test.param.codec));
                         });

LinearCudaArgs args_of(const Loaded& loaded, const GuardedBytes& x, const GuardedBytes& prepared,
                       const GuardedBytes& out, int64_t n_tokens, CudaOutput output,
                       LinearPass pass) {
  return {loaded.plan,
          loaded.weight.data(),
          x.as<uint16_t>(),
          loaded.plan.n_cols,
          prepared.data(),
          out.data(),
          loaded.plan.n_rows,
          n_tokens,
          output,
          Card::instance().device->facts().n_multiprocessors,
          pass};
}

// More than the matrices of one launch, of all sizes: blocks go from one into the next.
TEST_P(LinearGroupCuda, AGroupHasTheBitsOfItsMatrices) {
  constexpr int64_t kCols = 1184;
  constexpr int64_t kTokens = 11;
  const std::vector<int64_t> rows = {2500, 16, 3000, 5, 33, 700, 16, 1, 2200, 40};
  const std::vector<uint16_t> x = random_bf16(kTokens, kCols, 31);
  const GuardedBytes x_card(x);
  std::deque<TestMatrix> matrices;
  std::vector<Loaded> loaded;
  for (const int64_t n : rows) {
    matrices.emplace_back(codec(), n, kCols, static_cast<uint64_t>(n), 32);
    loaded.emplace_back(matrices.back().view(), family());
  }
  for (const LinearPass pass : {LinearPass::decode, LinearPass::prefill}) {
    const GuardedBytes prepared(linear_prepared_bytes(loaded[0].plan, kTokens));
    std::vector<GuardedBytes> outs;
    for (const int64_t n : rows) outs.emplace_back(kTokens * n * 4);
    std::vector<LinearCudaArgs> args;
    for (size_t i = 0; i < rows.size(); ++i) {
      args.push_back(
          args_of(loaded[i], x_card, prepared, outs[i], kTokens, CudaOutput::fp32, pass));
    }
    linear_group_cuda(args, *Card::instance().stream);
    Card::instance().stream->synchronize();
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_TRUE(outs[i].walls_intact());
      ASSERT_EQ(outs[i].values<float>(), run(loaded[i], x, kTokens, CudaOutput::fp32, pass))
          << "matrix " << i;
    }
  }
}

TEST_P(LinearGroupCuda, AGatedProductHasTheBitsOfItsParts) {
  constexpr int64_t kCols = 544;
  for (const int64_t n_rows : {40, 3208}) {
    const TestMatrix gates(codec(), n_rows, kCols, 41, 32);
    const TestMatrix ups(codec(), n_rows, kCols, 42, 32);
    const Loaded gate(gates.view(), family());
    const Loaded up(ups.view(), family());
    for (const int64_t n_tokens : {1, 4, 8, 9}) {
      const GuardedBytes x(random_bf16(n_tokens, kCols, 43));
      const GuardedBytes prepared(linear_prepared_bytes(gate.plan, n_tokens));
      for (const LinearPass pass : {LinearPass::decode, LinearPass::prefill}) {
        const auto product = [&](const Loaded& matrix, const GuardedBytes& out) {
          return args_of(matrix, x, prepared, out, n_tokens, CudaOutput::bf16, pass);
        };
        const GuardedBytes parts(n_tokens * n_rows * 2);
        const GuardedBytes other(n_tokens * n_rows * 2);
        const GuardedBytes whole(n_tokens * n_rows * 2);
        const GuardedBytes scratch(n_tokens * n_rows * 2);
        Stream& stream = *Card::instance().stream;
        linear_cuda(product(gate, parts), stream);
        linear_cuda(product(up, other), stream);
        auto* out = parts.as<uint16_t>();
        swiglu_cuda({out, n_rows, other.as<uint16_t>(), n_rows, out, n_rows, n_tokens, n_rows},
                    stream);
        linear_swiglu_cuda(product(gate, whole), product(up, scratch), stream);
        stream.synchronize();
        ASSERT_TRUE(whole.walls_intact());
        ASSERT_TRUE(scratch.walls_intact());
        ASSERT_EQ(whole.values<uint16_t>(), parts.values<uint16_t>())
            << n_rows << " rows, T " << n_tokens;
      }
    }
  }
}

// Few rows, so that a part has fewer tiles than blocks, and many.
TEST_P(LinearGroupCuda, HalvesHaveTheBitsOfTheirProducts) {
  constexpr int64_t kCols = 544;
  constexpr int64_t kStride = 2 * kCols;
  for (const int64_t n_rows : {1, 40, 9008}) {
    const TestMatrix matrices[2] = {{codec(), n_rows, kCols, 51, 32},
                                    {codec(), n_rows, kCols, 52, 32}};
    const Loaded halves[2] = {{matrices[0].view(), family()}, {matrices[1].view(), family()}};
    for (const int64_t n_tokens : {1, 3, 8, 9}) {
      const std::vector<uint16_t> x = random_bf16(n_tokens, kStride, 53);
      const GuardedBytes x_card(x);
      for (const LinearPass pass : {LinearPass::decode, LinearPass::prefill}) {
        const GuardedBytes prepared[2] = {
            GuardedBytes(linear_prepared_bytes(halves[0].plan, n_tokens)),
            GuardedBytes(linear_prepared_bytes(halves[0].plan, n_tokens))};
        const GuardedBytes outs[2] = {GuardedBytes(n_tokens * n_rows * 4),
                                      GuardedBytes(n_tokens * n_rows * 4)};
        const auto product = [&](int64_t half) {
          LinearCudaArgs args = args_of(halves[half], x_card, prepared[half], outs[half], n_tokens,
                                        CudaOutput::fp32, pass);
          args.x += half * kCols;
          args.x_stride = kStride;
          return args;
        };
        linear_halves_cuda(product(0), product(1), *Card::instance().stream);
        Card::instance().stream->synchronize();
        for (int64_t half = 0; half < 2; ++half) {
          std::vector<uint16_t> own;
          for (int64_t t = 0; t < n_tokens; ++t) {
            const auto row = x.begin() + t * kStride + half * kCols;
            own.insert(own.end(), row, row + kCols);
          }
          ASSERT_TRUE(outs[half].walls_intact());
          ASSERT_EQ(outs[half].values<float>(),
                    run(halves[half], own, n_tokens, CudaOutput::fp32, pass))
              << n_rows << " rows, T " << n_tokens << ", half " << half;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
