#include "engine/serve/routes.h"

#include <algorithm>
#include <array>

#include "engine/serve/error_body.h"

namespace lockstep::serve {
namespace {

struct Entry {
  std::string_view path;
  std::string_view method;
  Route route;
};

constexpr std::array<Entry, 16> kEntries = {{
    {"/v1/chat/completions", "POST", Route::generate},
    {"/v1/completions", "POST", Route::generate},
    {"/v1/messages", "POST", Route::generate},
    {"/v1/responses", "POST", Route::generate},
    {"/v1/messages/count_tokens", "POST", Route::side_call},
    {"/tokenize", "POST", Route::side_call},
    {"/detokenize", "POST", Route::side_call},
    {"/v1/models", "GET", Route::side_call},
    {"/", "GET", Route::page},
    {"/app.js", "GET", Route::page},
    {"/style.css", "GET", Route::page},
    {"/favicon.svg", "GET", Route::page},
    {"/health", "GET", Route::page},
    {"/ready", "GET", Route::page},
    {"/metrics", "GET", Route::page},
    {"/lockstep/status", "GET", Route::page},
}};

// Followed by a name or an id. Rank 0 says that it keeps no responses.
constexpr std::array<std::string_view, 2> kPrefixes = {"/v1/models/", "/v1/responses/"};

}  // namespace

Route route_of(std::string_view method, std::string_view target) {
  const std::string_view path = path_of(target);
  for (const Entry& entry : kEntries) {
    if (entry.path != path) continue;
    const bool head_of_get = method == "HEAD" && entry.method == "GET";
    return method == entry.method || head_of_get ? entry.route : Route::wrong_method;
  }
  for (const std::string_view prefix : kPrefixes) {
    if (!path.starts_with(prefix)) continue;
    return method == "GET" || method == "HEAD" ? Route::side_call : Route::wrong_method;
  }
  return Route::none;
}

std::string_view allowed_methods(std::string_view target) {
  const std::string_view path = path_of(target);
  const auto entry = std::find_if(kEntries.begin(), kEntries.end(),
                                  [&](const Entry& each) { return each.path == path; });
  const bool posts = entry != kEntries.end() && entry->method == "POST";
  return posts ? "POST" : "GET, HEAD";
}

}  // namespace lockstep::serve
