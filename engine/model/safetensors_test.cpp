#include "engine/model/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/base/float_formats.h"
#include "engine/model/tests/test_files.h"

namespace lockstep {
namespace {

// A file with this header text and `n_data` zero bytes.
std::vector<std::byte> file_with(const std::string& header, size_t n_data) {
  const uint64_t length = header.size();
  std::vector<std::byte> bytes(sizeof length + header.size() + n_data);
  std::memcpy(bytes.data(), &length, sizeof length);
  std::memcpy(bytes.data() + sizeof length, header.data(), header.size());
  return bytes;
}

void expect_refused(const std::vector<std::byte>& bytes, const std::vector<std::string>& words) {
  std::vector<std::string> all = words;
  all.push_back("the-file");
  expect_error([&] { SafetensorsFile(bytes, "the-file"); }, all);
}

std::string entry(const std::string& name, const std::string& rest) {
  return "\"" + name + "\":{" + rest + "}";
}

const std::string kGood = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";

TEST(Safetensors, WritesWhatItReads) {
  const std::vector<float> values = {1.0f, -2.5f, 3.0f};
  const uint8_t codes[] = {7, 9};
  SafetensorsWriter writer;
  writer.add("b", DType::F32, {3}, std::as_bytes(std::span(values)));
  writer.add("a \"quoted\" \xe4\xb8\xad", DType::U8, {1, 2}, std::as_bytes(std::span(codes)));
  writer.add("scalar", DType::F32, {}, std::as_bytes(std::span(values).first(1)));
  writer.set_metadata("key", "value");
  const TestDir dir;
  writer.write(dir / "x.safetensors");
  const SafetensorsFile file(dir / "x.safetensors");
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.metadata().at("key"), "value");
  EXPECT_EQ(to_float_vector(*file.find("b")), values);
  EXPECT_EQ(file.find("a \"quoted\" \xe4\xb8\xad")->shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(file.find("scalar")->shape_text(), "[]");
  EXPECT_EQ(file.find("missing"), nullptr);
}

TEST(Safetensors, RefusesTruncatedFilesAtEveryLength) {
  SafetensorsWriter writer;
  const uint16_t values[] = {1, 2, 3};
  writer.add("x", DType::U16, {3}, std::as_bytes(std::span(values)));
  const std::string header = writer.header();
  std::vector<std::byte> whole(header.size() + sizeof values);
  std::memcpy(whole.data(), header.data(), header.size());
  std::memcpy(whole.data() + header.size(), values, sizeof values);
  EXPECT_NO_THROW(SafetensorsFile(whole, "whole"));
  for (size_t n = 0; n < whole.size(); ++n) {
    const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<int64_t>(n));
    EXPECT_THROW(SafetensorsFile(part, "part"), Error) << n;
  }
}

TEST(Safetensors, RefusesAHeaderLongerThanTheFileOrTheLimit) {
  for (const uint64_t length :
       {uint64_t{100}, uint64_t{1} << 20, (uint64_t{1} << 63) + 1, ~uint64_t{0}}) {
    std::vector<std::byte> bytes = file_with("{}", 4);
    std::memcpy(bytes.data(), &length, sizeof length);
    expect_refused(bytes, {length > (100u << 20) ? "larger than" : "truncated"});
  }
}

TEST(Safetensors, RefusesOffsetsThatDoNotFit) {
  const auto with = [](const std::string& offsets) {
    return file_with(
        "{" + entry("x", R"("dtype":"F32","shape":[2],"data_offsets":)" + offsets) + "}", 8);
  };
  EXPECT_NO_THROW(SafetensorsFile(with("[0,8]"), "good"));
  for (const char* offsets :
       {"[0,9]", "[8,16]", "[8,0]", "[18446744073709551608,0]", "[0,7]", "[1,8]", "[-1,7]", "[0]",
        "[0,8,8]", "\"0,8\"", "[0.5,8]", "[null,8]"}) {
    expect_refused(with(offsets), {"tensor x", "data_offsets"});
  }
}

TEST(Safetensors, RefusesShapesThatOverflow) {
  for (const char* shape :
       {"[9223372036854775807,4]", "[4294967296,4294967296]", "[18446744073709551615]", "[-2]",
        "[2.0]", "[1,1,1,1,1,1,1,1,2]", "2"}) {
    const std::string rest = std::string(R"("dtype":"F32","data_offsets":[0,8],"shape":)") + shape;
    expect_refused(file_with("{" + entry("x", rest) + "}", 8), {"tensor x", "shape"});
  }
}

TEST(Safetensors, RefusesOverlapsAndDuplicates) {
  const std::string other = R"("dtype":"F32","shape":[2],"data_offsets":[4,12])";
  expect_refused(file_with("{" + entry("x", kGood) + "," + entry("y", other) + "}", 12),
                 {"x", "y", "overlap"});
  expect_refused(file_with("{" + entry("x", kGood) + "," + entry("x", kGood) + "}", 8),
                 {"tensor x", "twice"});
  const std::string same = kGood;
  expect_refused(file_with("{" + entry("x", kGood) + "," + entry("y", same) + "}", 8),
                 {"x", "y", "overlap"});
  const std::string inside = R"("dtype":"F32","shape":[0],"data_offsets":[4,4])";
  expect_refused(file_with("{" + entry("x", kGood) + "," + entry("y", inside) + "}", 8),
                 {"x", "y", "overlap"});
}

// The format has no holes: a byte that no tensor owns would be in no digest.
TEST(Safetensors, RefusesBytesOfNoTensor) {
  const std::string late = R"("dtype":"F32","shape":[2],"data_offsets":[12,20])";
  expect_refused(file_with("{" + entry("x", kGood) + "," + entry("y", late) + "}", 20),
                 {"4 data bytes before tensor y", "damaged"});
  expect_refused(file_with("{" + entry("y", late) + "}", 20), {"12 data bytes before tensor y"});
  expect_refused(file_with("{" + entry("x", kGood) + "}", 11), {"3 data bytes behind the last"});
  expect_refused(file_with("{}", 1), {"1 data bytes behind the last"});
  // Empty tensors own none and may stand at any border.
  const std::string first = R"("dtype":"F32","shape":[0,3],"data_offsets":[0,0])";
  const std::string last = R"("dtype":"F32","shape":[0],"data_offsets":[8,8])";
  const auto bytes = file_with(
      "{" + entry("l", last) + "," + entry("x", kGood) + "," + entry("f", first) + "}", 8);
  EXPECT_EQ(SafetensorsFile(bytes, "good").tensors().size(), 3u);
}

TEST(Safetensors, RefusesUnknownDtypes) {
  for (const char* dtype : {"\"F12\"", "\"f32\"", "7", "null", "{}"}) {
    const std::string rest = std::string(R"("shape":[2],"data_offsets":[0,8],"dtype":)") + dtype;
    expect_refused(file_with("{" + entry("x", rest) + "}", 8), {"tensor x", "dtype"});
  }
}

TEST(Safetensors, RefusesHeadersThatAreNoTable) {
  for (const char* header : {"", "[]", "7", "{", "nul", "{\"x\":7}", "{\"x\":{}}", "{\"x\":[]}",
                             "{\"__metadata__\":[]}", "{\"__metadata__\":{\"a\":7}}", "{} x"}) {
    EXPECT_THROW(SafetensorsFile(file_with(header, 0), "the-file"), Error) << header;
  }
  std::string deep = "{\"x\":";
  for (int i = 0; i < 100000; ++i) deep += '[';
  expect_refused(file_with(deep, 0), {"nested too deeply"});
  expect_refused(file_with("{" + entry(std::string(5000, 'n'), kGood) + "}", 8), {"tensor name"});
}

TEST(Safetensors, WidensTheFloatTypesExactly) {
  const uint16_t bits[] = {0x3f80, 0x0001, 0x8000};
  const TensorInfo bf16{"x", DType::BF16, {3}, std::as_bytes(std::span(bits))};
  const TensorInfo f16{"x", DType::F16, {3}, std::as_bytes(std::span(bits))};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(to_float_vector(bf16)[i], bf16_to_float(bits[i]));
    EXPECT_EQ(to_float_vector(f16)[i], f16_to_float(bits[i]));
  }
  const TensorInfo u16{"x", DType::U16, {3}, std::as_bytes(std::span(bits))};
  expect_error([&] { to_float_vector(u16); }, {"tensor x", "U16"});
}

}  // namespace
}  // namespace lockstep
