#include "engine/rank/api/api_error.h"

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

const char* anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
    case 529:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

// "messages[0].content" -> "messages.0.content".
std::string anthropic_path(const std::string& path) {
  std::string dotted;
  for (const char c : path) {
    if (c == '[') {
      dotted += '.';
    } else if (c != ']') {
      dotted += c;
    }
  }
  return dotted;
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

}  // namespace

void refuse_field(const std::string& param, const std::string& what, const std::string& code) {
  throw ApiError(400, "invalid_request_error", param, code, what);
}

std::string error_body(const ApiError& error, ApiDialect dialect) {
  Json body;
  std::string message = error.what();
  if (dialect == ApiDialect::anthropic) {
    if (!error.param().empty()) message = anthropic_path(error.param()) + ": " + message;
    body["type"] = "error";
    body["error"] = {{"type", anthropic_type(error.status())}, {"message", message}};
  } else {
    if (!error.param().empty()) message = error.param() + ": " + message;
    body["error"] = {{"message", message},
                     {"type", error.type()},
                     {"param", text_or_null(error.param())},
                     {"code", text_or_null(error.code())}};
  }
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ApiDialect dialect_of_path(const std::string& path) {
  return path.rfind("/v1/messages", 0) == 0 ? ApiDialect::anthropic : ApiDialect::openai;
}

}  // namespace lockstep
