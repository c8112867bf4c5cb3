// What the proxy says about a request beside its body (docs/formats/rank-api.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/rank/http/http_server.h"

namespace lockstep {

struct RequestHeaders {
  std::optional<uint64_t> sequence;  // absent: the rank is used alone
  uint64_t seed = 0;
  int64_t unix_time_s = 0;
  std::string request_id;
};

// Reads Lockstep-Sequence, Lockstep-Seed, Lockstep-Unix-Time and Lockstep-Request-Id; draws what is
// not there. Throws ApiError 400 that names the header, also when `must_be_numbered` and there is
// no number.
RequestHeaders read_request_headers(const HttpRequest& request, bool must_be_numbered);

// The number alone, when it is there and well formed.
std::optional<uint64_t> sequence_of(const HttpRequest& request);

}  // namespace lockstep
