#include "engine/model/weight_formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <set>

#include "engine/base/error.h"
#include "engine/base/process.h"
#include "engine/model/shard_plan.h"
#include "engine/model/tests/test_files.h"

namespace lockstep {
namespace {

// Matrices and their values from the Python decoders.
const Checkpoint& cases() {
  static const TestDir dir;
  static const Checkpoint* checkpoint = [] {
    const ProcessResult result = run_process(
        {"/usr/bin/python3", LOCKSTEP_SOURCE_DIR "/engine/model/tests/make_format_cases.py",
         (dir / "cases.safetensors").string()});
    if (result.exit_code != 0) fail("{}", result.stderr_text);
    return new Checkpoint(dir.path());
  }();
  return *checkpoint;
}

std::set<std::string> case_names() {
  std::set<std::string> names;
  for (const auto& [name, tensor] : cases().tensors()) {
    const std::string end = ".expected";
    if (name.size() > end.size() && name.ends_with(end)) {
      names.insert(name.substr(0, name.size() - end.size()));
    }
  }
  return names;
}

// The parts of a case, with private bytes to damage.
class Parts {
 public:
  explicit Parts(const std::string& base) {
    for (const std::string& suffix : matrix_suffixes()) {
      if (const TensorInfo* part = cases().find(base + "." + suffix)) set(suffix, *part);
    }
  }

  void set(const std::string& suffix, const TensorInfo& part) {
    bytes_[suffix].assign(part.bytes.begin(), part.bytes.end());
    infos_[suffix] = part;
    infos_[suffix].bytes = bytes_[suffix];
  }
  std::byte& byte(const std::string& suffix, size_t index) { return bytes_.at(suffix).at(index); }
  template <typename T>
  void put(const std::string& suffix, size_t index, T value) {
    std::memcpy(&bytes_.at(suffix).at(index * sizeof value), &value, sizeof value);
  }
  TensorInfo& info(const std::string& suffix) { return infos_.at(suffix); }
  void drop(const std::string& suffix) { infos_.erase(suffix); }

  StoredMatrix open() const {
    MatrixParts parts;
    for (const auto& [suffix, info] : infos_) parts[suffix] = &info;
    return find_weight_format("the.matrix", parts).open("the.matrix", parts);
  }
  void expect_refused(const std::vector<std::string>& words) const {
    std::vector<std::string> all = words;
    all.push_back("the.matrix");
    expect_error([&] { open(); }, all);
  }

 private:
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::map<std::string, TensorInfo> infos_;
};

TEST(WeightFormats, DecodeExactlyAsTheIndependentDecoders) {
  std::set<std::string> formats;
  for (const std::string& name : case_names()) {
    const std::vector<float> expected = to_float_vector(*cases().find(name + ".expected"));
    const Parts parts(name);  // owns the bytes that the matrix views
    const StoredMatrix stored = parts.open();
    formats.insert(stored.format);
    EXPECT_EQ(name.rfind(stored.format, 0), 0u) << name << " was taken for " << stored.format;
    const auto n_cols = static_cast<size_t>(stored.view.n_cols);
    ASSERT_EQ(expected.size(), n_cols * static_cast<size_t>(stored.view.n_rows)) << name;
    std::vector<float> row(n_cols);
    for (int64_t n = 0; n < stored.view.n_rows; ++n) {
      decode_row(stored.view, n, row.data());
      for (size_t k = 0; k < n_cols; ++k) {
        const float want = expected[static_cast<size_t>(n) * n_cols + k];
        ASSERT_EQ(std::bit_cast<uint32_t>(row[k]), std::bit_cast<uint32_t>(want))
            << name << " row " << n << " column " << k << ": " << row[k] << " for " << want;
      }
    }
  }
  EXPECT_EQ(formats.size(), weight_formats().size()) << "a format has no case";
}

TEST(WeightFormats, RefuseNaNCodesWhereverTheyAre) {
  for (const char* name : {"fp8-tensor.rank0", "fp8-channel.F32.rank2", "fp8-block.BF16"}) {
    const size_t n = Parts(name).info("weight").bytes.size();
    for (const size_t at : {size_t{0}, size_t{7}, size_t{12}, n - 1}) {
      for (const uint8_t code : {uint8_t{0x7f}, uint8_t{0xff}}) {
        Parts parts(name);
        parts.byte("weight", at) = std::byte{code};
        parts.expect_refused({"NaN", "weight", std::to_string(at)});
      }
    }
  }
  Parts parts("nvfp4-modelopt.all");
  parts.byte("weight_scale", 3) = std::byte{0x7f};
  parts.expect_refused({"NaN", "weight_scale"});
}

TEST(WeightFormats, RefuseScalesThatAreNone) {
  for (const uint8_t negative : {uint8_t{0x80}, uint8_t{0xb8}}) {
    for (const char* name : {"nvfp4-modelopt.all", "nvfp4-ct.all"}) {
      Parts parts(name);
      parts.byte("weight_scale", 127) = std::byte{negative};
      parts.expect_refused({"negative scale", "127"});
    }
  }
  const float inf = std::numeric_limits<float>::infinity();
  for (const float scale : {0.0f, -1.0f, inf, std::nanf("")}) {
    Parts parts("fp8-tensor.rank1");
    parts.put("weight_scale", 0, scale);
    parts.expect_refused({"weight_scale", "positive and finite"});
  }
  Parts tiny("nvfp4-ct.all");
  tiny.put("weight_global_scale", 0, 1e-45f);
  tiny.expect_refused({"weight_global_scale", "reciprocal"});
  for (const char* name : {"fp8-channel.F32.rank2", "fp8-block.F32"}) {
    const std::string suffix = name[4] == 'c' ? "weight_scale" : "weight_scale_inv";
    Parts parts(name);
    parts.put(suffix, 1, inf);
    parts.expect_refused({suffix, "inf"});
  }
  Parts gptq("gptq.all");
  gptq.put("scales", 5, uint16_t{0x7c00});
  gptq.expect_refused({"scales", "inf", "5"});
}

TEST(WeightFormats, RefuseRaggedShapesByName) {
  struct Row {
    const char* name;
    const char* suffix;
    std::vector<int64_t> shape;  // of as many bytes as before
  };
  const Row rows[] = {
      {"nvfp4-modelopt.all", "weight", {32, 32}},
      {"nvfp4-modelopt.all", "weight_scale", {8, 16}},
      {"nvfp4-ct.all", "weight_packed", {64, 16}},
      {"fp8-channel.F32.rank2", "weight_scale", {1, 24}},
      {"fp8-channel.F32.rank2", "weight_scale", {12, 2}},
      {"fp8-block.F32", "weight_scale_inv", {4, 1}},
      {"fp8-block.F32", "weight", {160, 136, 1}},
      {"int4-ct.BF16.symmetric", "weight_scale", {32, 2}},
      {"int4-ct.BF16.symmetric", "weight_packed", {64, 4}},
      {"int4-ct.F16.zeros", "weight_zero_point", {1, 8}},
      {"gptq.all", "qweight", {32, 16}},
      {"gptq.all", "qzeros", {4, 2}},
      {"gptq.all", "scales", {1, 64}},
      {"awq.all", "qweight", {64, 8}},
      {"awq.all", "qzeros", {1, 8}},
  };
  for (const Row& row : rows) {
    Parts parts(row.name);
    parts.info(row.suffix).shape = row.shape;
    const std::string message = error_of([&] { parts.open(); });
    EXPECT_NE(message.find("the.matrix"), std::string::npos) << row.name << ": " << message;
    EXPECT_NE(message.find('['), std::string::npos) << "no shape in: " << message;
  }
}

TEST(WeightFormats, RefuseActivationOrder) {
  for (const auto& [name, suffix] :
       {std::pair("gptq.all", "g_idx"), std::pair("int4-ct.F16.zeros", "weight_g_idx")}) {
    Parts parts(name);
    parts.put(suffix, 3, int32_t{1});
    parts.expect_refused({"activation order", "desc_act"});
    Parts shifted(name);  // a rank's part starts at a later group
    const size_t n = shifted.info(suffix).bytes.size() / 4;
    for (size_t k = 0; k < n; ++k) {
      int32_t group = 0;
      std::memcpy(&group, &shifted.byte(suffix, 4 * k), sizeof group);
      shifted.put(suffix, k, group + 5);
    }
    EXPECT_NO_THROW(shifted.open());
  }
}

TEST(WeightFormats, RefuseAWrongStoredShape) {
  Parts parts("int4-ct.BF16.symmetric");
  parts.put("weight_shape", 1, int64_t{120});
  parts.expect_refused({"weight_shape", "120"});
}

TEST(WeightFormats, NameWhatIsThereWhenNothingMatches) {
  Parts parts("nvfp4-modelopt.all");
  parts.drop("weight_scale_2");
  parts.expect_refused({"no known weight format", "weight U8 [16, 64]", "weight_scale F8_E4M3"});
}

// Fuzzing starts from the corpus: a format without a whole matrix there is hardly reached.
TEST(WeightFormats, EveryFormatIsInTheFuzzCorpus) {
  const std::filesystem::path corpus = LOCKSTEP_SOURCE_DIR "/engine/model/fuzz/corpus/safetensors";
  for (const WeightFormat& format : weight_formats()) {
    const Checkpoint seed(std::make_unique<SafetensorsFile>(corpus / format.name));
    std::string base;
    for (const auto& [name, tensor] : seed.tensors()) {
      if (!split_tensor_name(name).suffix.empty()) base = split_tensor_name(name).base;
    }
    EXPECT_EQ(seed.matrix(base).format, format.name);
  }
}

}  // namespace
}  // namespace lockstep
