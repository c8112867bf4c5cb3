#include "hardware-probe/observe/observations.h"

#include <cctype>
#include <cmath>

#include "engine/base/error.h"
#include "hardware-probe/observe/json_fields.h"

namespace lockstep::probe {
namespace {

constexpr int kMaxGpus = 64;

void refuse(const std::string& origin, const std::string& why) {
  fail_with(ExitCode::usage, "{}: {}", origin, why);
}

// What the checks index with must point at something.
void check_shape(const Observations& seen, const std::string& origin) {
  if (seen.version != 1) {
    refuse(origin,
           fmt::format("observations of version {}; this program reads version 1", seen.version));
  }
  if (seen.gpus.size() > kMaxGpus) refuse(origin, "more than 64 GPUs");
  const int n = static_cast<int>(seen.gpus.size());
  for (const PairObservations& pair : seen.pairs) {
    const bool valid = pair.from >= 0 && pair.from < n && pair.to >= 0 && pair.to < n;
    if (!valid || pair.from == pair.to) refuse(origin, "a pair names a GPU that is not listed");
  }
}

}  // namespace

const char* mode_name(Mode mode) {
  switch (mode) {
    case Mode::quick:
      return "quick";
    case Mode::standard:
      return "standard";
    case Mode::deep:
      return "deep";
  }
  return "?";
}

std::string gpu_target(int gpu) {
  return fmt::format("gpu{}", gpu);
}
std::string pair_target(int from, int to) {
  return fmt::format("gpu{}>gpu{}", from, to);
}

std::string observations_to_json(const Observations& observations, int indent) {
  return Json(observations).dump(indent, ' ', false, Json::error_handler_t::replace);
}

Observations observations_from_json(const std::string& text, const std::string& origin) {
  Observations seen;
  try {
    Json document = Json::parse(text);
    if (!document.is_object()) refuse(origin, "no JSON object");
    // A report carries its observations, so either file can be judged again.
    if (document.contains("observations")) document = document.at("observations");
    if (!document.is_object() || !document.contains("steps") || !document.contains("gpus")) {
      refuse(origin, "neither a record nor a report of lockstep-probe");
    }
    seen = document.get<Observations>();
  } catch (const Json::exception& error) {
    refuse(origin, fmt::format("not a probe record: {}", error.what()));
  }
  check_shape(seen, origin);
  return seen;
}

}  // namespace lockstep::probe
