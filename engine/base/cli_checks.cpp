#include "engine/base/cli_checks.h"

#include <CLI/CLI.hpp>
#include <string>

#include "engine/base/error.h"

namespace lockstep {

CLI::Validator number_in(double low, double high) {
  const auto check = [low, high](std::string& text) {
    double value = 0.0;
    const bool inside = CLI::detail::lexical_cast(text, value) && value >= low && value <= high;
    return inside ? std::string() : fmt::format("Value {} not in range {} to {}", text, low, high);
  };
  return CLI::Validator(check, fmt::format("FLOAT in [{} - {}]", low, high));
}

}  // namespace lockstep
