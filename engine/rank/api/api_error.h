// A request that cannot be served, in the words of the APIs.
#pragma once

#include <string>

#include "engine/base/error.h"

namespace lockstep {

class ApiError : public Error {
 public:
  // `param`: the field of the request that is wrong ("messages[0].role"), or empty. `type` and
  // `code` as OpenAI names them; an empty `code` is null.
  ApiError(int status, std::string type, std::string param, std::string code,
           const std::string& message)
      : Error(message),
        status_(status),
        type_(std::move(type)),
        param_(std::move(param)),
        code_(std::move(code)) {}

  int status() const { return status_; }
  const std::string& type() const { return type_; }
  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }

 private:
  int status_;
  std::string type_;
  std::string param_;
  std::string code_;
};

// 400 invalid_request_error that names the field.
[[noreturn]] void refuse_field(const std::string& param, const std::string& what,
                               const std::string& code = "");

enum class ApiDialect { openai, anthropic };

// The error's JSON body. OpenAI: {"error": {message, type, param, code}}; Anthropic: {"type":
// "error", "error": {type, message}}, with the field named in the message.
std::string error_body(const ApiError& error, ApiDialect dialect);

// Anthropic's endpoints lie at /v1/messages.
ApiDialect dialect_of_path(const std::string& path);

}  // namespace lockstep
