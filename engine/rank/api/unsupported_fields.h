// Fields of OpenAI's API and of other servers that would change an answer and that this engine
// does not have. To ignore them, as other unknown fields are, would answer another question.
#pragma once

#include "engine/rank/api/json_view.h"

namespace lockstep {

// Throws ApiError 400 that names the field, unless its value asks for nothing: null, false, 0, an
// empty string, list or object, or what this engine does anyway.
void refuse_unsupported_fields(const JsonView& body);

}  // namespace lockstep
