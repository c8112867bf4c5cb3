// Which paths there are, and who answers them.
#pragma once

#include <string_view>

namespace lockstep::serve {

enum class Route {
  generate,   // numbered, goes to every rank
  side_call,  // rank 0 answers, without the engine
  page,       // the proxy answers
  none,
  wrong_method
};

Route route_of(std::string_view method, std::string_view target);

// Of a path that there is, as the header Allow names them.
std::string_view allowed_methods(std::string_view target);

}  // namespace lockstep::serve
