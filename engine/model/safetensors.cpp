#include "engine/model/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int64_t bytes;
};

constexpr std::array<DTypeRow, 15> kDTypes = {{{DType::F64, "F64", 8},
                                               {DType::F32, "F32", 4},
                                               {DType::F16, "F16", 2},
                                               {DType::BF16, "BF16", 2},
                                               {DType::F8_E4M3, "F8_E4M3", 1},
                                               {DType::F8_E5M2, "F8_E5M2", 1},
                                               {DType::U8, "U8", 1},
                                               {DType::I8, "I8", 1},
                                               {DType::U16, "U16", 2},
                                               {DType::I16, "I16", 2},
                                               {DType::U32, "U32", 4},
                                               {DType::I32, "I32", 4},
                                               {DType::U64, "U64", 8},
                                               {DType::I64, "I64", 8},
                                               {DType::BOOL, "BOOL", 1}}};

constexpr size_t kMaxHeaderBytes = size_t{100} << 20;  // the limit of the safetensors specification
constexpr size_t kMaxDimensions = 8;
constexpr size_t kMaxNameBytes = 1024;

const DTypeRow& dtype_row(DType dtype) {
  return *std::find_if(kDTypes.begin(), kDTypes.end(),
                       [dtype](const DTypeRow& row) { return row.dtype == dtype; });
}

DType parse_dtype(const Json& value, const std::string& where) {
  const std::string name = value.is_string() ? value.get<std::string>() : value.dump();
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  fail("{}: unknown dtype {}", where, name);
}

int64_t parse_size(const Json& value, const std::string& where, const char* what) {
  const bool fits = value.is_number_unsigned() &&
                    value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
  if (!fits) fail("{}: {} must be a non-negative integer below 2^63", where, what);
  return value.get<int64_t>();
}

// Header length, or throws.
size_t header_length(std::span<const std::byte> bytes, const std::string& label) {
  uint64_t length = 0;
  if (bytes.size() < sizeof length) fail("{}: truncated: shorter than its length prefix", label);
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kMaxHeaderBytes)
    fail("{}: header of {} bytes is larger than 100 MiB", label, length);
  if (length > bytes.size() - sizeof length) {
    fail("{}: truncated: the header claims {} bytes, the file has {}", label, length,
         bytes.size() - sizeof length);
  }
  return static_cast<size_t>(length);
}

Json parse_header(std::string_view text, const std::string& label) {
  std::set<std::string> names;
  std::string duplicate;
  const auto note_duplicates = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth == 1 && event == Json::parse_event_t::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      if (!names.insert(name).second) duplicate = name;
    }
    if (depth > 4) fail("{}: header is nested too deeply", label);
    return true;
  };
  Json header = Json::parse(text, note_duplicates, false);
  if (header.is_discarded() || !header.is_object()) fail("{}: header is not a JSON object", label);
  if (!duplicate.empty()) fail("{}: tensor {} is listed twice", label, duplicate);
  return header;
}

struct Extent {
  int64_t begin;
  int64_t end;
};

TensorInfo parse_tensor(const std::string& name, const Json& entry, int64_t data_bytes,
                        const std::string& label, Extent& extent) {
  if (name.size() > kMaxNameBytes) fail("{}: a tensor name has {} bytes", label, name.size());
  const std::string where = label + ": tensor " + name;
  const bool complete = entry.is_object() && entry.contains("dtype") && entry.contains("shape") &&
                        entry.contains("data_offsets");
  if (!complete) fail("{}: needs dtype, shape and data_offsets", where);
  TensorInfo tensor;
  tensor.name = name;
  tensor.dtype = parse_dtype(entry["dtype"], where);
  const Json& shape = entry["shape"];
  const Json& offsets = entry["data_offsets"];
  if (!shape.is_array() || shape.size() > kMaxDimensions) {
    fail("{}: shape must be a list of at most {} sizes", where, kMaxDimensions);
  }
  if (!offsets.is_array() || offsets.size() != 2) fail("{}: data_offsets must be a pair", where);
  int64_t expected = dtype_bytes(tensor.dtype);
  for (const Json& size : shape) {
    tensor.shape.push_back(parse_size(size, where, "a size in shape"));
    if (__builtin_mul_overflow(expected, tensor.shape.back(), &expected)) {
      fail("{}: shape overflows", where);
    }
  }
  extent = {parse_size(offsets[0], where, "data_offsets"),
            parse_size(offsets[1], where, "data_offsets")};
  if (extent.begin > extent.end || extent.end > data_bytes) {
    fail(
        "{}: data_offsets [{}, {}] lie outside the {} data bytes: the file is truncated or damaged",
        where, extent.begin, extent.end, data_bytes);
  }
  if (extent.end - extent.begin != expected) {
    fail("{}: {} {} needs {} bytes, data_offsets give {}", where, dtype_name(tensor.dtype),
         tensor.shape_text(), expected, extent.end - extent.begin);
  }
  return tensor;
}

// The format has no holes: every data byte belongs to exactly one tensor. `sorted` by extent.
void check_cover(const std::vector<std::pair<Extent, TensorInfo>>& sorted, int64_t n_data,
                 const std::string& label) {
  constexpr const char* kRemedy = "the file is damaged, fetch it again";
  int64_t n_covered = 0;
  const TensorInfo* before = nullptr;
  for (const auto& [extent, tensor] : sorted) {
    if (extent.begin < n_covered) {
      fail("{}: tensors {} and {} overlap: {}", label, before->name, tensor.name, kRemedy);
    }
    if (extent.begin > n_covered) {
      fail("{}: {} data bytes before tensor {} belong to no tensor: {}", label,
           extent.begin - n_covered, tensor.name, kRemedy);
    }
    n_covered = extent.end;
    before = &tensor;
  }
  if (n_covered < n_data) {
    fail("{}: {} data bytes behind the last tensor belong to none: {}", label, n_data - n_covered,
         kRemedy);
  }
}

}  // namespace

std::string_view dtype_name(DType dtype) {
  return dtype_row(dtype).name;
}
int64_t dtype_bytes(DType dtype) {
  return dtype_row(dtype).bytes;
}

int64_t TensorInfo::n_elements() const {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

int64_t TensorInfo::n_bytes() const {
  return n_elements() * dtype_bytes(dtype);
}

std::string TensorInfo::shape_text() const {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : label_(path.string()), file_(path) {
  parse(file_.bytes());
}

SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, const std::string& label)
    : label_(label) {
  parse(bytes);
}

void SafetensorsFile::parse(std::span<const std::byte> bytes) {
  const size_t length = header_length(bytes, label_);
  const auto text = bytes.subspan(sizeof(uint64_t), length);
  const auto data = bytes.subspan(sizeof(uint64_t) + length);
  header_text_ = {reinterpret_cast<const char*>(text.data()), text.size()};
  const Json header = parse_header(header_text_, label_);
  std::vector<std::pair<Extent, TensorInfo>> found;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) fail("{}: __metadata__ must be an object", label_);
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) fail("{}: __metadata__.{} must be a string", label_, key);
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    Extent extent{};
    TensorInfo tensor =
        parse_tensor(name, entry, static_cast<int64_t>(data.size()), label_, extent);
    tensor.bytes = data.subspan(static_cast<size_t>(extent.begin),
                                static_cast<size_t>(extent.end - extent.begin));
    found.emplace_back(extent, std::move(tensor));
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.begin, a.first.end) < std::pair(b.first.begin, b.first.end);
  });
  check_cover(found, static_cast<int64_t>(data.size()), label_);
  for (auto& [extent, tensor] : found) {
    index_[tensor.name] = tensors_.size();
    tensors_.push_back(std::move(tensor));
  }
}

const TensorInfo* SafetensorsFile::find(const std::string& name) const {
  const auto at = index_.find(name);
  return at == index_.end() ? nullptr : &tensors_[at->second];
}

void SafetensorsWriter::add(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                            std::span<const std::byte> bytes) {
  TensorInfo tensor{name, dtype, shape, bytes};
  LOCKSTEP_CHECK(tensor.n_bytes() == static_cast<int64_t>(bytes.size()));
  tensors_.push_back(std::move(tensor));
}

std::string safetensors_header(const std::vector<TensorInfo>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    json[tensor.name] = {{"dtype", dtype_name(tensor.dtype)},
                         {"shape", tensor.shape},
                         {"data_offsets", {offset, offset + tensor.n_bytes()}}};
    offset += tensor.n_bytes();
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

void SafetensorsWriter::write(const std::filesystem::path& path) const {
  std::string file = header();
  for (const TensorInfo& tensor : tensors_) {
    file.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  write_file_atomically(path, file);
}

std::vector<float> to_float_vector(const TensorInfo& tensor) {
  const auto n = static_cast<size_t>(tensor.n_elements());
  std::vector<float> values(n);
  if (tensor.dtype == DType::F32) {
    if (n != 0) std::memcpy(values.data(), tensor.bytes.data(), n * sizeof(float));
    return values;
  }
  if (tensor.dtype != DType::BF16 && tensor.dtype != DType::F16) {
    fail("tensor {}: is {}, expected F32, BF16 or F16", tensor.name, dtype_name(tensor.dtype));
  }
  for (size_t i = 0; i < n; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, tensor.bytes.data() + 2 * i, sizeof bits);
    values[i] = tensor.dtype == DType::BF16 ? bf16_to_float(bits) : f16_to_float(bits);
  }
  return values;
}

}  // namespace lockstep
