// What a check concludes.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>

namespace lockstep::probe {

// Every sentence for people exists in both languages of the market.
struct Text {
  std::string en, zh;
};

template <typename... Args>
Text say(fmt::string_view en, fmt::string_view zh, const Args&... args) {
  return {fmt::vformat(en, fmt::make_format_args(args...)),
          fmt::vformat(zh, fmt::make_format_args(args...))};
}

// info: worth knowing, no effect on the verdict. skip: should have run and could not.
enum class Status { pass, info, warn, fail, skip, inconclusive };
const char* status_name(Status status);

struct Finding {
  std::string check, name, target;  // "C12", "mem.patterns", "gpu1"
  Status status = Status::pass;
  std::optional<double> value;
  std::string unit;
  std::optional<double> threshold;
  std::string source;  // where the threshold comes from
  Text reason, remedy;
};

}  // namespace lockstep::probe
