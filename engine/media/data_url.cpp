#include "engine/media/data_url.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>

#include "engine/base/error.h"

namespace lockstep {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr size_t kMaxShown = 40;  // of a URL that is refused

// -1 for what is no base64 digit.
int digit_of(char c) {
  static const std::array<int8_t, 256> table = [] {
    std::array<int8_t, 256> values{};
    values.fill(-1);
    for (size_t i = 0; i < kDigits.size(); ++i) {
      values[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
    }
    return values;
  }();
  return table[static_cast<unsigned char>(c)];
}

std::vector<std::byte> decode_base64(std::string_view text, const std::string& label) {
  size_t n_padding = 0;
  while (n_padding < 2 && !text.empty() && text.back() == '=') {
    text.remove_suffix(1);
    ++n_padding;
  }
  // Padding may be left out, but where it is there it must fit.
  const bool fits = n_padding == 0 || (text.size() + n_padding) % 4 == 0;
  if (text.size() % 4 == 1 || !fits) fail("{}: the base64 text is cut short", label);
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    const int digit = digit_of(c);
    if (digit < 0) fail("{}: is not base64", label);
    bits = bits << 6 | static_cast<uint32_t>(digit);
    n_bits += 6;
    if (n_bits < 8) continue;
    n_bits -= 8;
    bytes.push_back(static_cast<std::byte>(bits >> n_bits & 0xffu));
  }
  return bytes;
}

bool starts_with_any_case(std::string_view text, std::string_view lower) {
  if (text.size() < lower.size()) return false;
  for (size_t i = 0; i < lower.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(text[i])) != lower[i]) return false;
  }
  return true;
}

}  // namespace

bool is_data_url(std::string_view text) {
  return starts_with_any_case(text, "data:");
}

std::string encode_data_url(std::span<const std::byte> bytes) {
  std::string url = "data:image/*;base64,";
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < n ? std::to_integer<uint32_t>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) url += k <= n ? kDigits[bits >> (18 - 6 * k) & 63u] : '=';
  }
  return url;
}

std::vector<std::byte> decode_data_url(std::string_view url, const std::string& label,
                                       size_t max_bytes) {
  if (!is_data_url(url)) {
    fail("{}: {} is not a data URL; pictures are not fetched, send data:image/...;base64,...",
         label,
         url.size() > kMaxShown ? std::string(url.substr(0, kMaxShown)) + "..." : std::string(url));
  }
  const size_t comma = url.find(',');
  if (comma == std::string_view::npos) fail("{}: the data URL has no comma", label);
  const std::string_view head = url.substr(5, comma - 5);
  if (!starts_with_any_case(head, "image/")) fail("{}: the data URL is not an image", label);
  constexpr std::string_view kBase64 = ";base64";
  const bool base64 = head.size() >= kBase64.size() &&
                      starts_with_any_case(head.substr(head.size() - kBase64.size()), kBase64);
  if (!base64) fail("{}: the data URL is not base64", label);
  const std::string_view text = url.substr(comma + 1);
  if (text.size() / 4 * 3 > max_bytes) fail("{}: is larger than {} bytes", label, max_bytes);
  return decode_base64(text, label);
}

}  // namespace lockstep
