// The serving scenarios, against any endpoint: what callers do, also rudely, and whether the
// service answers afterwards.
#pragma once

#include <string>
#include <vector>

namespace lockstep::serve {

struct SmokeOptions {
  std::string url;      // http://HOST:PORT
  std::string model;    // empty: the first of /v1/models
  std::string api_key;  // may be empty
  bool images = true;
  bool anthropic = true;
};

struct SmokeResult {
  std::string scenario;
  std::string verdict;  // PASS, FAIL, SKIPPED
  std::string note;
};

// Runs every scenario in order. Throws Error when there is no endpoint at the URL.
std::vector<SmokeResult> run_smoke(const SmokeOptions& options);

}  // namespace lockstep::serve
