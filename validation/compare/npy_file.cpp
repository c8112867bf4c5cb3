#include "validation/compare/npy_file.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/base/mapped_file.h"

namespace lockstep {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxRank = 8;

template <typename... Args>
[[noreturn]] void bad_npy(const std::string& label, fmt::format_string<Args...> format,
                          Args&&... args) {
  fail_with(ExitCode::could_not_judge, "{}: {}", label,
            fmt::format(format, std::forward<Args>(args)...));
}

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
  size_t data_offset = 0;
};

// What stands behind 'key': in the header, a Python dict literal that NumPy writes in one form.
std::string_view value_of(std::string_view dict, std::string_view key, const std::string& label) {
  const size_t at = dict.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) bad_npy(label, "the header has no '{}'", key);
  std::string_view value = dict.substr(at + key.size() + 3);
  return value.substr(std::min(value.find_first_not_of(' '), value.size()));
}

std::vector<int64_t> parse_shape(std::string_view text, const std::string& label) {
  const size_t end = text.find(')');
  if (text.empty() || text[0] != '(' || end == std::string_view::npos) {
    bad_npy(label, "'shape' is no tuple");
  }
  std::vector<int64_t> shape;
  std::string_view rest = text.substr(1, end - 1);
  while (rest.find_first_not_of(" ,") != std::string_view::npos) {
    rest = rest.substr(rest.find_first_not_of(" ,"));
    int64_t size = -1;
    const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), size);
    if (error != std::errc() || size < 0) bad_npy(label, "'shape' holds no number: {}", rest);
    rest = rest.substr(static_cast<size_t>(stop - rest.data()));
    shape.push_back(size);
  }
  if (shape.size() > kMaxRank) bad_npy(label, "more than {} dimensions", kMaxRank);
  return shape;
}

Header parse_header(std::string_view bytes, const std::string& label) {
  if (!bytes.starts_with(kMagic) || bytes.size() < 12) bad_npy(label, "is not a .npy file");
  const int version = bytes[6];
  if (version < 1 || version > 3) bad_npy(label, "is of .npy version {}, need 1 to 3", version);
  const size_t length_bytes = version == 1 ? 2 : 4;
  size_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) {
    length |= size_t{static_cast<unsigned char>(bytes[8 + i])} << (8 * i);
  }
  const size_t begin = 8 + length_bytes;
  if (length > bytes.size() - begin) bad_npy(label, "the header is longer than the file");
  const std::string_view dict = bytes.substr(begin, length);
  Header header;
  const std::string_view descr = value_of(dict, "descr", label);
  const size_t quote = descr.size() > 1 ? descr.find('\'', 1) : std::string_view::npos;
  if (descr.empty() || descr[0] != '\'' || quote == std::string_view::npos) {
    bad_npy(label, "'descr' is no plain type");
  }
  header.descr = descr.substr(1, quote - 1);
  header.fortran_order = value_of(dict, "fortran_order", label).starts_with("True");
  header.shape = parse_shape(value_of(dict, "shape", label), label);
  header.data_offset = begin + length;
  return header;
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

struct Type {
  size_t bytes;
  float (*read)(const std::byte*);
};

Type type_of(const std::string& descr, const std::string& label) {
  if (descr == "<f4") return {4, [](const std::byte* at) { return load<float>(at); }};
  if (descr == "<f8") {
    return {8, [](const std::byte* at) { return static_cast<float>(load<double>(at)); }};
  }
  if (descr == "<f2") {
    return {2, [](const std::byte* at) { return f16_to_float(load<uint16_t>(at)); }};
  }
  if (descr == "<V2" || descr == "|V2" || descr == "bfloat16") {
    return {2, [](const std::byte* at) { return bf16_to_float(load<uint16_t>(at)); }};
  }
  bad_npy(label, "holds {}, need float16, float32, float64 or bfloat16 in little-endian order",
          descr);
}

// Place in Fortran order (first dimension fastest) of the element that is `index`-th in C order.
size_t fortran_index(const std::vector<int64_t>& shape, size_t index) {
  std::vector<int64_t> at(shape.size());
  auto rest = static_cast<int64_t>(index);
  for (size_t d = shape.size(); d-- > 0;) {
    at[d] = rest % shape[d];
    rest /= shape[d];
  }
  int64_t place = 0;
  for (size_t d = shape.size(); d-- > 0;) place = place * shape[d] + at[d];
  return static_cast<size_t>(place);
}

}  // namespace

FloatTensor parse_npy(std::span<const std::byte> bytes, const std::string& label) {
  const Header header =
      parse_header({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, label);
  const Type type = type_of(header.descr, label);
  const size_t n_data = bytes.size() - header.data_offset;
  size_t n = 1;
  for (const int64_t size : header.shape) {
    if (size != 0 && n > n_data / static_cast<size_t>(size)) {
      bad_npy(label, "the shape needs more data than the file has");
    }
    n *= static_cast<size_t>(size);
  }
  if (n * type.bytes != n_data) {
    bad_npy(label, "{} bytes of data, the shape needs {}", n_data, n * type.bytes);
  }
  FloatTensor tensor{header.shape, std::vector<float>(n)};
  for (size_t i = 0; i < n; ++i) {
    const size_t from = header.fortran_order ? fortran_index(header.shape, i) : i;
    tensor.values[i] = type.read(bytes.data() + header.data_offset + from * type.bytes);
  }
  return tensor;
}

FloatTensor read_npy(const std::filesystem::path& path) {
  const MappedFile file(path);
  return parse_npy(file.bytes(), path.string());
}

}  // namespace lockstep
