#include "engine/rank/api/unsupported_fields.h"

#include <nlohmann/json.hpp>
#include <vector>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

struct Field {
  const char* name;
  const char* remedy;
  Json own = nullptr;  // what this engine does anyway
};

constexpr const char* kNoConstraints =
    "is not supported: this server does not constrain text; ask for the form in the prompt";
constexpr const char* kOneAnswer = "only 1 answer a request is supported";
constexpr const char* kTextOnly = "only text answers are supported";
constexpr const char* kNo = "is not supported; leave it out";

const std::vector<Field>& fields() {
  static const std::vector<Field> all = {
      {"guided_json", kNoConstraints},
      {"guided_regex", kNoConstraints},
      {"guided_choice", kNoConstraints},
      {"guided_grammar", kNoConstraints},
      {"structured_outputs", kNoConstraints},
      {"grammar", kNoConstraints},
      {"json_schema", kNoConstraints},
      {"allowed_token_ids", kNoConstraints},
      {"bad_words", "is not supported; use logit_bias"},
      {"min_tokens", "is not supported; use ignore_eos with max_tokens"},
      {"stop_token_ids", "is not supported; use stop"},
      {"include_stop_str_in_output", kNo},
      {"skip_special_tokens", kNo, true},
      {"add_generation_prompt", kNo, true},
      {"continue_final_message", kNo},
      {"prompt_logprobs", kNo},
      {"truncate_prompt_tokens", kNo},
      {"use_beam_search", kOneAnswer},
      {"best_of", kOneAnswer, 1},
      {"echo", kNo},
      {"modalities", kTextOnly, Json::array({"text"})},
      {"audio", kTextOnly},
      {"function_call", "is not supported; use tool_choice"},
      {"web_search_options", "is not supported; give the model a tool for it"},
  };
  return all;
}

bool asks_for_nothing(const Json& value, const Json& own) {
  if (value == own) return true;
  if (!own.is_null()) return false;
  return value == false || value == 0 || value == "" || (value.is_structured() && value.empty());
}

}  // namespace

void refuse_unsupported_fields(const JsonView& body) {
  for (const Field& field : fields()) {
    const JsonView value = body[field.name];
    if (!value.given()) continue;
    if (!asks_for_nothing(*static_cast<const Json*>(value.node()), field.own)) {
      value.refuse(field.remedy);
    }
  }
}

}  // namespace lockstep
