// Any bytes as the body of a request to every endpoint: refused with an ApiError, or a request that
// renders (or says why not) and whose tools are readable.
#include "engine/base/error.h"
#include "engine/rank/api/answer.h"
#include "engine/rank/api/api_error.h"
#include "engine/rank/api/chat_completions.h"
#include "engine/rank/api/completions.h"
#include "engine/rank/api/messages.h"
#include "engine/rank/api/responses.h"
#include "engine/rank/api/tokens.h"
#include "engine/text/chat_request.h"
#include "engine/text/utf8.h"

namespace {

using namespace lockstep;

const ChatTemplate& small_template() {
  static const ChatTemplate instance(
      "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
      "{% for message in messages %}{{ message.role }}{{ message.content }}"
      "{{ (message.tool_calls or []) | tojson }}{% endfor %}{{ enable_thinking }}",
      "fuzz", {.limits = {.max_steps = 20'000, .max_output_bytes = 1 << 20}});
  return instance;
}

void check(const GenerationRequest& request) {
  const int n_prompts = int{request.chat_json.has_value()} + int{request.prompt_text.has_value()} +
                        int{request.prompt_ids.has_value()};
  LOCKSTEP_CHECK(n_prompts == 1);
  LOCKSTEP_CHECK(request.stops.size() <= kMaxStops);
  LOCKSTEP_CHECK(request.max_tokens.value_or(1) >= 1);
  if (request.chat_json) {
    LOCKSTEP_CHECK(is_valid_utf8(*request.chat_json));
    render_chat(small_template(), *request.chat_json, 0);
  }
  if (!request.tools_json.empty()) ToolSchemas::from_request(request.tools_json);
}

template <typename Parse>
void attempt(const Parse& parse) {
  try {
    check(parse());
  } catch (const ApiError& error) {
    LOCKSTEP_CHECK(error.status() == 400);
    LOCKSTEP_CHECK(is_valid_utf8(error_body(error, ApiDialect::openai)));
    LOCKSTEP_CHECK(is_valid_utf8(error_body(error, ApiDialect::anthropic)));
  } catch (const Error&) {
    // The template or a schema said why not.
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  attempt([&] { return parse_chat_completion(body, {}); });
  attempt([&] { return parse_completion(body, {}); });
  attempt([&] { return parse_message(body, {}); });
  attempt([&] { return parse_count_tokens(body, {}); });
  attempt([&] { return parse_response(body, {}); });
  attempt([&] { return parse_tokenize(body); });
  try {
    parse_detokenize(body);
  } catch (const ApiError&) {
  }
  return 0;
}
