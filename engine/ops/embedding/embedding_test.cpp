#include "engine/ops/embedding/embedding.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/ops/common/op_test_util.h"

namespace lockstep {
namespace {

using namespace op_test;

constexpr int64_t kRows = 11;
constexpr int64_t kCols = 37;
constexpr int64_t kPadding = 1;  // bytes between rows: rows lie at odd addresses

// A table whose rows are padded and unaligned, as they may be in a file.
class Table {
 public:
  explicit Table(Codec codec) : element_bytes_(codec == Codec::f32 ? 4 : 2) {
    matrix_.codec = codec;
    matrix_.n_rows = kRows;
    matrix_.n_cols = kCols;
    matrix_.row_bytes = kCols * element_bytes_ + kPadding;
    bytes_.resize(static_cast<size_t>(kRows * matrix_.row_bytes + 1));
    PhiloxStream stream(41);
    for (int64_t n = 0; n < kRows; ++n) {
      for (int64_t k = 0; k < kCols; ++k) store(n, k, stream.next_uniform() * 8.0f - 4.0f);
    }
    matrix_.codes = bytes_.data() + 1;
  }

  void store(int64_t n, int64_t k, float value) {
    std::byte* to = bytes_.data() + 1 + n * matrix_.row_bytes + k * element_bytes_;
    const uint16_t narrow =
        matrix_.codec == Codec::bf16 ? float_to_bf16(value) : float_to_f16(value);
    if (element_bytes_ == 4) {
      std::memcpy(to, &value, 4);
    } else {
      std::memcpy(to, &narrow, 2);
    }
  }

  float stored(int64_t n, int64_t k) const {
    const std::byte* from = matrix_.codes + n * matrix_.row_bytes + k * element_bytes_;
    float value = 0.0f;
    uint16_t narrow = 0;
    std::memcpy(&narrow, from, 2);
    if (element_bytes_ == 4) std::memcpy(&value, from, 4);
    if (matrix_.codec == Codec::bf16) value = bf16_to_float(narrow);
    if (matrix_.codec == Codec::f16) value = f16_to_float(narrow);
    return value;
  }

  const WeightMatrix& matrix() const { return matrix_; }

 private:
  int64_t element_bytes_;
  std::vector<std::byte> bytes_;
  WeightMatrix matrix_;
};

class Embedding : public ::testing::TestWithParam<Codec> {};
INSTANTIATE_TEST_SUITE_P(Codecs, Embedding, ::testing::Values(Codec::bf16, Codec::f16, Codec::f32));

int mismatches(const Table& table, const std::vector<int32_t>& ids, const std::vector<float>& out,
               Rounding rounding) {
  int count = 0;
  for (size_t t = 0; t < ids.size(); ++t) {
    for (int64_t k = 0; k < kCols; ++k) {
      const float value = table.stored(ids[t], k);
      const float want = rounding == Rounding::bf16 ? round_to_bf16(value) : value;
      const float got = out[t * kCols + static_cast<size_t>(k)];
      count += std::bit_cast<uint32_t>(got) != std::bit_cast<uint32_t>(want) ? 1 : 0;
    }
  }
  return count;
}

TEST_P(Embedding, GathersRowsBitForBitAndWritesNothingElse) {
  const Table table(GetParam());
  const std::vector<int32_t> ids = {0, 10, 3, 3, 7};
  for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
    std::vector<float> out(ids.size() * kCols + 2, kGuard);
    embedding(table.matrix(), ids.data(), static_cast<int64_t>(ids.size()), rounding, out.data());
    EXPECT_EQ(mismatches(table, ids, out, rounding), 0);
    EXPECT_EQ(out[ids.size() * kCols], kGuard);
    EXPECT_EQ(out[ids.size() * kCols + 1], kGuard);
  }
}

TEST_P(Embedding, NanStaysNan) {
  Table table(GetParam());
  table.store(4, 2, std::numeric_limits<float>::quiet_NaN());
  const int32_t id = 4;
  for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
    std::vector<float> out(kCols);
    embedding(table.matrix(), &id, 1, rounding, out.data());
    for (size_t k = 0; k < kCols; ++k) EXPECT_EQ(std::isnan(out[k]), k == 2);
  }
}

TEST_P(Embedding, MutantNextRowIsFound) {
  const Table table(GetParam());
  const int32_t wrong = 6;
  std::vector<float> out(kCols);
  embedding(table.matrix(), &wrong, 1, Rounding::none, out.data());
  EXPECT_GT(mismatches(table, {5}, out, Rounding::none), 0);
}

TEST(EmbeddingMutant, MissingRoundingIsFound) {
  const Table table(Codec::f32);
  const std::vector<int32_t> ids = {1};
  std::vector<float> out(kCols);
  embedding(table.matrix(), ids.data(), 1, Rounding::none, out.data());
  EXPECT_GT(mismatches(table, ids, out, Rounding::bf16), 0);
}

TEST(EmbeddingDeathTest, AnIdOutsideTheTableStops) {
  const Table table(Codec::bf16);
  std::vector<float> out(kCols);
  for (const int32_t id : {-1, static_cast<int32_t>(kRows)}) {
    EXPECT_DEATH(embedding(table.matrix(), &id, 1, Rounding::none, out.data()), "internal error");
  }
}

TEST(EmbeddingDeathTest, AQuantisedTableStops) {
  Table table(Codec::bf16);
  WeightMatrix matrix = table.matrix();
  matrix.codec = Codec::fp8;
  const int32_t id = 0;
  std::vector<float> out(kCols);
  EXPECT_DEATH(embedding(matrix, &id, 1, Rounding::none, out.data()), "internal error");
}

}  // namespace
}  // namespace lockstep
