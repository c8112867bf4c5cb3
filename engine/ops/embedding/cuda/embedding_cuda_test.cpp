// Gathered rows on a card: the CPU's bits.
#include "engine/ops/embedding/cuda/embedding_cuda.h"

#include <cstring>

#include "engine/ops/common/cuda/row_test_util.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/weighted_embedding/cuda/weighted_embedding_cuda.h"

namespace lockstep {
namespace {

using namespace op_test;

class EmbeddingCuda : public testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_CARD(); }
};

// A table of that codec from floats, as bytes.
std::vector<std::byte> table_of(Codec codec, const std::vector<float>& values) {
  std::vector<std::byte> bytes;
  for (const float value : values) {
    const uint32_t word = codec == Codec::f32   ? std::bit_cast<uint32_t>(value)
                          : codec == Codec::f16 ? float_to_f16(value)
                                                : float_to_bf16(value);
    const auto* from = reinterpret_cast<const std::byte*>(&word);
    bytes.insert(bytes.end(), from, from + (codec == Codec::f32 ? 4 : 2));
  }
  return bytes;
}

TEST_F(EmbeddingCuda, RowsHaveTheBitsOfTheCpu) {
  constexpr int64_t kTableRows = 9;
  for (const Codec codec : {Codec::bf16, Codec::f16, Codec::f32}) {
    for (const int64_t n_cols : {8, 1016, 1024, 1032, 5120}) {
      const std::vector<std::byte> bytes =
          table_of(codec, random_floats(1, kTableRows * n_cols, 3.0f));
      WeightMatrix table;
      table.codec = codec;
      table.n_rows = kTableRows;
      table.n_cols = n_cols;
      table.codes = bytes.data();
      table.row_bytes = codec_row_bytes(codec, n_cols);
      const std::vector<int32_t> ids = {3, 0, 8, 3, 1};
      const auto n_tokens = static_cast<int64_t>(ids.size());
      std::vector<float> want(static_cast<size_t>(n_tokens * n_cols));
      embedding(table, ids.data(), n_tokens, Rounding::bf16, want.data());
      const GuardedBytes table_card(bytes);
      const GuardedBytes ids_card(ids);
      const GuardedBytes out(n_tokens * n_cols * 2);
      embedding_cuda({codec, table_card.data(), table.row_bytes, kTableRows, n_cols,
                      ids_card.as<int32_t>(), n_tokens, out.as<uint16_t>()},
                     card_stream());
      EXPECT_TRUE(out.walls_intact());
      expect_same_bf16(out.values<uint16_t>(), want,
                       std::string(codec_name(codec)) + " " + std::to_string(n_cols));
    }
  }
}

TEST_F(EmbeddingCuda, AnIdOutsideTheTableGivesNan) {
  const std::vector<std::byte> bytes = table_of(Codec::bf16, random_floats(1, 4 * 16, 3.0f));
  const GuardedBytes table(bytes);
  const GuardedBytes ids(std::vector<int32_t>{-1, 4, 3, 2147483647});
  const GuardedBytes out(4 * 16 * 2);
  embedding_cuda({Codec::bf16, table.data(), 32, 4, 16, ids.as<int32_t>(), 4, out.as<uint16_t>()},
                 card_stream());
  const std::vector<float> got = floats_of_bf16(out.values<uint16_t>());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isnan(got[i]), i / 16 != 2) << i;
}

TEST_F(EmbeddingCuda, WeightedRowsHaveTheBitsOfTheCpu) {
  ThreadPool pool(1);
  for (const int64_t width : {128, 1152}) {
    constexpr int64_t kTableRows = 50;
    constexpr int64_t kTokens = 400;
    const std::vector<float> table = random_floats(1, kTableRows * width, 2.0f);
    PhiloxStream random(5);
    std::vector<WeightedRows> sources(kTokens);
    for (WeightedRows& source : sources) {
      for (int32_t& row : source.rows) row = static_cast<int32_t>(random.next_below(kTableRows));
      for (float& weight : source.weights) weight = random.next_uniform();
    }
    std::vector<float> want(static_cast<size_t>(kTokens * width));
    weighted_embedding(
        {table.data(), kTableRows, width, sources.data(), want.data(), kTokens, Rounding::bf16},
        pool);
    const GuardedBytes table_card(table);
    const GuardedBytes sources_card(sources);
    const GuardedBytes out(kTokens * width * 2);
    weighted_embedding_cuda({table_card.as<float>(), width, sources_card.as<WeightedRows>(),
                             out.as<uint16_t>(), kTokens},
                            card_stream());
    EXPECT_TRUE(out.walls_intact());
    expect_same_bf16(out.values<uint16_t>(), want, "weighted rows");
  }
}

}  // namespace
}  // namespace lockstep
