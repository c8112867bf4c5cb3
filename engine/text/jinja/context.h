// The request's JSON as template values.
#pragma once

#include <string_view>

#include "engine/text/jinja/runtime.h"
#include "engine/text/jinja/value.h"

namespace lockstep::jinja {

// The value of a JSON text. Objects keep their order (of a key given twice, the first place and the
// last value, as in Python); numbers keep their kind, and integers of any size their digits. Throws
// Error that begins with `what` for text that is not JSON or nests too deeply.
Value value_of_json(Runtime& runtime, std::string_view json, std::string_view what);

// Adds the members of a JSON object to `scope`.
void add_json_variables(Runtime& runtime, std::string_view json, Scope* scope);

}  // namespace lockstep::jinja
