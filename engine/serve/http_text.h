// HTTP responses as text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/serve/messages.h"

namespace lockstep::serve {

struct Connection {
  bool keep_alive = true;
  bool http_1_0 = false;  // knows no chunks: a stream ends with the connection
};

// The head of a response with a body of `n_bytes`; without a number, of a stream.
std::string response_head(const AnswerHead& head, const Connection& connection,
                          std::optional<size_t> n_bytes);

// `bytes` as one chunk of a stream; nothing for no bytes.
std::string chunk(std::string_view bytes, const Connection& connection);
std::string last_chunk(const Connection& connection);

}  // namespace lockstep::serve
