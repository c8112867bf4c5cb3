#include "engine/model/convert/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "engine/base/float_formats.h"
#include "engine/base/mapped_file.h"
#include "engine/model/convert/storage_formats.h"
#include "engine/model/inspect.h"
#include "engine/model/shard_set.h"
#include "engine/model/shard_writer.h"
#include "engine/model/tests/test_files.h"
#include "engine/model/weight_formats.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = LOCKSTEP_GOLDEN_DIR "/tiny-qwen3_5";

struct Encoded {
  PartBuffers buffers;
  std::map<std::string, TensorInfo> infos;
  StoredMatrix stored;
};

// Encodes and opens again.
std::unique_ptr<Encoded> encode(const StorageFormat& format, int64_t n_rows, int64_t n_cols,
                                const std::vector<float>& values) {
  auto encoded = std::make_unique<Encoded>();
  const MatrixSource source{n_rows, n_cols, [&](int64_t row, float* out) {
                              std::copy_n(values.begin() + row * n_cols, n_cols, out);
                            }};
  encoded->buffers = encode_matrix(format, "m", source);
  MatrixParts parts;
  for (const PartSpec& part : format.parts(format, n_rows, n_cols)) {
    encoded->infos[part.suffix] = {part.suffix, part.dtype, part.shape,
                                   encoded->buffers.at(part.suffix)};
  }
  for (const auto& [suffix, info] : encoded->infos) parts[suffix] = &info;
  encoded->stored = find_weight_format("m", parts).open("m", parts);
  return encoded;
}

std::vector<float> decode(const WeightMatrix& matrix) {
  std::vector<float> values(static_cast<size_t>(matrix.n_rows * matrix.n_cols));
  for (int64_t n = 0; n < matrix.n_rows; ++n)
    decode_row(matrix, n, values.data() + n * matrix.n_cols);
  return values;
}

std::vector<float> random_values(int64_t n, uint64_t seed) {
  PhiloxStream random(seed);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) {
    value = 0.0f;
    for (int i = 0; i < 4; ++i) value += random.next_uniform() - 0.5f;
  }
  return values;
}

// Half a step of the coarsest code at the group's largest value, over that value.
double worst_relative_to_largest(const std::string& format) {
  if (format == "bf16") return 0x1p-8;
  if (format.rfind("fp8", 0) == 0) return 0x1p-4 + 0x1p-8;       // with a rounded scale
  if (format.rfind("nvfp4", 0) == 0) return 1.0 / 6.0 + 0x1p-4;  // and an E4M3 scale
  return 0.5 / 7.5 + 0.5 / 7.5 + 0x1p-7;  // int4: clamped at the positive end
}

TEST(StorageFormats, WhatIsWrittenIsReadAsThatFormat) {
  for (const StorageFormat& format : storage_formats()) {
    const std::vector<float> values = random_values(24 * 256, 7);
    const auto encoded = encode(format, 24, 256, values);
    EXPECT_EQ(encoded->stored.format, format.read_as);
    const std::vector<float> decoded = decode(encoded->stored.view);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto row = i / 256 * 256;
      float amax = 0.0f;  // a bound by the row suffices for every format
      for (size_t k = row; k < row + 256; ++k) amax = std::max(amax, std::fabs(values[k]));
      if (format.name == "fp8-tensor" || format.name == "fp8-block") amax = 2.0f;
      ASSERT_NEAR(decoded[i], values[i], worst_relative_to_largest(std::string(format.name)) * amax)
          << format.name << " at " << i;
    }
  }
}

TEST(StorageFormats, ZerosAndHugeValuesStayFinite) {
  for (const StorageFormat& format : storage_formats()) {
    std::vector<float> values(8 * 128, 0.0f);
    for (const float value : decode(encode(format, 8, 128, values)->stored.view)) {
      ASSERT_EQ(value, 0.0f) << format.name;
    }
    values[5] = 60000.0f;
    values[200] = -1e-30f;
    for (const float value : decode(encode(format, 8, 128, values)->stored.view)) {
      ASSERT_TRUE(std::isfinite(value)) << format.name;
    }
  }
}

TEST(StorageFormats, RefuseSizesByName) {
  const std::vector<float> values(9 * 40, 1.0f);
  for (const char* name : {"nvfp4-modelopt", "nvfp4-ct", "int4-g64", "int4-g128", "gptq", "awq"}) {
    expect_error([&] { encode(storage_format(name), 9, 40, values); },
                 {"matrix m", "[9, 40]", name});
  }
}

// Values that a format holds exactly come back exactly: rounding, nibble order and scales are the
// reader's.
TEST(StorageFormats, ExactValuesComeBackExactly) {
  const auto check = [](const char* name, float scale, const std::vector<float>& codes) {
    std::vector<float> values(8 * 128);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = scale * codes[(i * 7 + i / 128) % codes.size()];
    EXPECT_EQ(decode(encode(storage_format(name), 8, 128, values)->stored.view), values) << name;
  };
  std::vector<float> e2m1(kE2m1Values, kE2m1Values + 8);
  for (size_t i = 1; i < 8; ++i) e2m1.push_back(-e2m1[i]);
  check("nvfp4-modelopt", 0x1p-3f, e2m1);
  check("nvfp4-ct", 0x1p-3f, e2m1);
  std::vector<float> e4m3;
  for (int code = 0; code < 0x7f; ++code) e4m3.push_back(e4m3_to_float(static_cast<uint8_t>(code)));
  check("fp8-tensor", 1.0f, e4m3);
  check("fp8-channel", 0x1p-4f, e4m3);
  check("fp8-block", 0x1p-4f, e4m3);
  std::vector<float> asymmetric;
  for (int code = 0; code < 16; ++code) asymmetric.push_back(static_cast<float>(code - 5));
  check("awq", 0x1p-6f, asymmetric);
}

class ConvertGolden : public testing::TestWithParam<std::string> {};

TEST_P(ConvertGolden, ReadsBackShardsAndRejoins) {
  const ConvertTarget& target = *find_convert_target(GetParam());
  const TestDir dir;
  const fs::path out = dir / "converted";
  const auto report =
      convert_checkpoint(Checkpoint(kGolden), read_companion_files(kGolden), target, out);
  for (const ConvertError& row : report) {
    const double limit = row.format == "bf16"              ? 0.003
                         : row.format.rfind("fp8", 0) == 0 ? 0.03
                                                           : 0.13;
    EXPECT_LT(row.relative_error, limit) << row.tensor_class << " " << row.format;
    if (row.format == "nvfp4-ct") EXPECT_LT(row.worst, 1e-6) << "same codes, other global scale";
  }
  // The config tells the truth about every matrix.
  const ModelConfig config = load_model_config(out);
  const Checkpoint converted(out);
  const InspectReport inspected =
      inspect_checkpoint(config, converted, 2, read_text_file(out / "config.json"));
  EXPECT_EQ(inspected.oddities, std::vector<std::string>());
  EXPECT_TRUE(inspected.has_mtp);
  // Bit-exact rejoin at TP=2.
  write_shards(config, converted, read_companion_files(out), 2, dir / "shards");
  EXPECT_EQ(verify_shards(config, converted, ShardSet(dir / "shards")).n_tensors,
            static_cast<int64_t>(converted.tensors().size()));
  EXPECT_EQ(join_shards(dir / "shards", dir / "joined").digest, converted.digest());
}

TEST_P(ConvertGolden, ConvertingAgainKeepsEveryBit) {
  const ConvertTarget& target = *find_convert_target(GetParam());
  const TestDir dir;
  convert_checkpoint(Checkpoint(kGolden), read_companion_files(kGolden), target, dir / "once");
  const auto report = convert_checkpoint(Checkpoint(dir / "once"),
                                         read_companion_files(dir / "once"), target, dir / "twice");
  for (const ConvertError& row : report) EXPECT_EQ(row.n_encoded, 0) << row.worst_matrix;
  EXPECT_EQ(Checkpoint(dir / "once").digest(), Checkpoint(dir / "twice").digest());
}

INSTANTIATE_TEST_SUITE_P(Formats, ConvertGolden,
                         testing::Values("bf16", "nvfp4-fp8", "nvfp4-fp8-ct", "fp8-channel",
                                         "fp8-block", "int4-g64", "int4-g128", "gptq", "awq"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST(Convert, GoldenIsInItsOwnFormatAlready) {
  const TestDir dir;
  const auto report = convert_checkpoint(Checkpoint(kGolden), read_companion_files(kGolden),
                                         *find_convert_target("nvfp4-fp8"), dir / "same");
  for (const ConvertError& row : report) EXPECT_EQ(row.n_encoded, 0) << row.worst_matrix;
  EXPECT_EQ(Checkpoint(dir / "same").digest(), Checkpoint(kGolden).digest());
}

}  // namespace
}  // namespace lockstep
