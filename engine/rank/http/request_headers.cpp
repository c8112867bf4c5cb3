#include "engine/rank/http/request_headers.h"

#include <algorithm>
#include <charconv>

#include "engine/rank/api/api_error.h"
#include "engine/rank/http/outside.h"

namespace lockstep {
namespace {

template <typename T>
std::optional<T> parse_number(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && !text.empty() ? std::optional<T>(value) : std::nullopt;
}

template <typename T>
std::optional<T> number_header(const HttpRequest& request, const char* name) {
  const auto text = request.header(name);
  if (!text) return std::nullopt;
  const auto value = parse_number<T>(*text);
  if (!value) refuse_field(name, "is not a number of 64 bits");
  return value;
}

bool plain_id(const std::string& id) {
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_';
  });
}

}  // namespace

RequestHeaders read_request_headers(const HttpRequest& request, bool must_be_numbered) {
  RequestHeaders headers;
  headers.sequence = number_header<uint64_t>(request, "Lockstep-Sequence");
  if (headers.sequence == 0) refuse_field("Lockstep-Sequence", "counts from 1");
  if (must_be_numbered && !headers.sequence) {
    refuse_field("Lockstep-Sequence", "is missing: a rank of two takes requests from its proxy");
  }
  const auto seed = number_header<uint64_t>(request, "Lockstep-Seed");
  headers.seed = seed ? *seed : random_u64();
  const auto now = number_header<int64_t>(request, "Lockstep-Unix-Time");
  headers.unix_time_s = now ? *now : unix_time_now_s();
  headers.request_id =
      request.header("Lockstep-Request-Id").value_or(fmt::format("{:016x}", random_u64()));
  if (!plain_id(headers.request_id)) {
    refuse_field("Lockstep-Request-Id", "must be letters, digits, '-' and '_', 128 at most");
  }
  return headers;
}

std::optional<uint64_t> sequence_of(const HttpRequest& request) {
  const auto text = request.header("Lockstep-Sequence");
  return text ? parse_number<uint64_t>(*text) : std::nullopt;
}

}  // namespace lockstep
