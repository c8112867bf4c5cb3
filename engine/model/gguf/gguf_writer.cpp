#include "engine/model/gguf/gguf_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/base/progress.h"

namespace lockstep {
namespace {

constexpr uint32_t kVersion = 3;
constexpr int64_t kAlignment = 32;
constexpr int64_t kBlock = 32;           // values of a q8_0 block
constexpr int64_t kBlockBytes = 2 + 32;  // F16 scale, then int8 codes

enum class KeyType : uint32_t { u32 = 4, i32 = 5, f32 = 6, boolean = 7, string = 8, array = 9 };

template <typename T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_string(std::string& out, const std::string& text) {
  append(out, static_cast<uint64_t>(text.size()));
  out += text;
}

void append_key(std::string& out, const std::string& key, KeyType type) {
  append_string(out, key);
  append(out, static_cast<uint32_t>(type));
}

int64_t aligned(int64_t n) {
  return (n + kAlignment - 1) / kAlignment * kAlignment;
}

void encode_q8_block(std::span<float> values, std::byte* out) {
  float amax = 0.0f;
  for (const float value : values) amax = std::max(amax, std::fabs(value));
  const float scale = amax / 127.0f;
  const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
  const uint16_t scale_bits = float_to_f16(scale);
  std::memcpy(out, &scale_bits, sizeof scale_bits);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto code = static_cast<int8_t>(std::round(values[i] * inverse));
    std::memcpy(out + sizeof scale_bits + i, &code, sizeof code);
    values[i] = static_cast<float>(code) * f16_to_float(scale_bits);
  }
}

}  // namespace

int64_t gguf_row_bytes(GgufType type, int64_t n) {
  switch (type) {
    case GgufType::f32:
      return n * 4;
    case GgufType::f16:
      return n * 2;
    case GgufType::q8_0:
      LOCKSTEP_CHECK(n % kBlock == 0);
      return n / kBlock * kBlockBytes;
  }
  LOCKSTEP_CHECK(!"gguf type");
  return 0;
}

void gguf_encode_row(GgufType type, std::span<float> values, std::byte* out) {
  if (type == GgufType::f32) {
    std::memcpy(out, values.data(), values.size() * sizeof(float));
    return;
  }
  if (type == GgufType::f16) {
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t bits = float_to_f16(values[i]);
      std::memcpy(out + 2 * i, &bits, sizeof bits);
      values[i] = f16_to_float(bits);
    }
    return;
  }
  for (size_t i = 0; i < values.size(); i += kBlock, out += kBlockBytes) {
    encode_q8_block(values.subspan(i, kBlock), out);
  }
}

int64_t GgufTensor::n_rows() const {
  int64_t n = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) n *= shape[i];
  return n;
}

int64_t GgufTensor::n_bytes() const {
  return n_rows() * gguf_row_bytes(type, shape.back());
}

void GgufWriter::add_u32(const std::string& key, uint32_t value) {
  append_key(keys_, key, KeyType::u32);
  append(keys_, value);
  ++n_keys_;
}

void GgufWriter::add_f32(const std::string& key, float value) {
  append_key(keys_, key, KeyType::f32);
  append(keys_, value);
  ++n_keys_;
}

void GgufWriter::add_bool(const std::string& key, bool value) {
  append_key(keys_, key, KeyType::boolean);
  append(keys_, static_cast<uint8_t>(value));
  ++n_keys_;
}

void GgufWriter::add_string(const std::string& key, const std::string& value) {
  append_key(keys_, key, KeyType::string);
  append_string(keys_, value);
  ++n_keys_;
}

void GgufWriter::add_i32_array(const std::string& key, const std::vector<int32_t>& values) {
  append_key(keys_, key, KeyType::array);
  append(keys_, static_cast<uint32_t>(KeyType::i32));
  append(keys_, static_cast<uint64_t>(values.size()));
  for (const int32_t value : values) append(keys_, value);
  ++n_keys_;
}

void GgufWriter::add_string_array(const std::string& key, const std::vector<std::string>& values) {
  append_key(keys_, key, KeyType::array);
  append(keys_, static_cast<uint32_t>(KeyType::string));
  append(keys_, static_cast<uint64_t>(values.size()));
  for (const std::string& value : values) append_string(keys_, value);
  ++n_keys_;
}

std::string GgufWriter::header() const {
  std::string out = "GGUF";
  append(out, kVersion);
  append(out, static_cast<uint64_t>(tensors_.size()));
  append(out, n_keys_);
  out += keys_;
  int64_t offset = 0;
  for (const GgufTensor& tensor : tensors_) {
    append_string(out, tensor.name);
    append(out, static_cast<uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
      append(out, static_cast<uint64_t>(*size));
    }
    append(out, static_cast<uint32_t>(tensor.type));
    append(out, static_cast<uint64_t>(offset));
    offset += aligned(tensor.n_bytes());
  }
  out.resize(static_cast<size_t>(aligned(static_cast<int64_t>(out.size()))), '\0');
  return out;
}

void GgufWriter::write(const std::filesystem::path& path, const RowVisitor& visit) const {
  const std::string head = header();
  int64_t total = static_cast<int64_t>(head.size());
  for (const GgufTensor& tensor : tensors_) total += aligned(tensor.n_bytes());
  check_disk_space(path.parent_path(), total);
  OutputFile file(path);
  file.write_at(0, head);
  Progress progress("converting", static_cast<uint64_t>(total), "B");
  auto at = static_cast<int64_t>(head.size());
  for (const GgufTensor& tensor : tensors_) {
    const auto width = static_cast<size_t>(tensor.shape.back());
    const int64_t row_bytes = gguf_row_bytes(tensor.type, tensor.shape.back());
    std::vector<float> before(width);
    std::vector<float> after(width);
    std::vector<std::byte> bytes(static_cast<size_t>(row_bytes));
    for (int64_t n = 0; n < tensor.n_rows(); ++n) {
      tensor.row(n, before.data());
      after = before;
      gguf_encode_row(tensor.type, after, bytes.data());
      file.write_at(at + n * row_bytes, bytes);
      visit(tensor, before, after);
      progress.advance(bytes.size());
    }
    at += aligned(tensor.n_bytes());
  }
  file.commit(total);
}

}  // namespace lockstep
