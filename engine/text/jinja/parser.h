// Parses statements: the whole template.
#pragma once

#include <string_view>

#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/lexer.h"

namespace lockstep::jinja {

// Throws Error "line N: ..." for bad syntax and for what is not supported, which it names.
Block parse_template(std::string_view source, const WhiteSpaceRules& rules);

}  // namespace lockstep::jinja
