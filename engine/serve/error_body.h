// What the proxy says itself, in the shape that a client of that path expects.
#pragma once

#include <string>
#include <string_view>

#include "engine/serve/messages.h"

namespace lockstep::serve {

// True for paths of the Anthropic API.
bool is_anthropic_path(std::string_view target);

// The path without its query.
std::string_view path_of(std::string_view target);

// JSON of the refusal.
std::string error_json(std::string_view target, const Refusal& refusal);

// The last server-sent event of a stream that ends with the refusal.
std::string error_event(std::string_view target, const Refusal& refusal);

}  // namespace lockstep::serve
