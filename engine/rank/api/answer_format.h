// An answer in the form of one API, streamed or whole. The bytes depend on nothing but what is
// passed in: two ranks write the same.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/rank/api/answer.h"

namespace lockstep {

struct AnswerIdentity {
  std::string request_id;  // becomes "chatcmpl-REQUEST_ID" and the like
  std::string model;
  std::string fingerprint;  // of checkpoint and build
  int64_t created_unix_s = 0;
};

class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // Server-sent events, each complete: the head, once the first tokens are known; what a round
  // adds (perhaps nothing); the end.
  virtual std::string begin(const AnswerUsage& prompt_usage) = 0;
  virtual std::string piece(const AnswerPiece& piece) = 0;
  virtual std::string end(const AnswerEnd& end) = 0;

  // The JSON body of an answer that is not streamed.
  virtual std::string whole(const Answer& answer, const AnswerEnd& end) = 0;
};

// "call_REQUEST_ID_0" and so on.
std::string tool_call_id(const AnswerIdentity& identity, size_t index);

}  // namespace lockstep
