// Checks of options that CLI11 lacks.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "engine/base/error.h"

namespace lockstep {

// A number from low to high. CLI::Range lets NaN through, which lies on no side of a border.
inline CLI::Validator number_in(double low, double high) {
  const auto check = [low, high](std::string& text) {
    double value = 0.0;
    const bool inside = CLI::detail::lexical_cast(text, value) && value >= low && value <= high;
    return inside ? std::string()
                  : fmt::format("{} is not a number from {} to {}", text, low, high);
  };
  return CLI::Validator(check, fmt::format("FLOAT in [{} - {}]", low, high));
}

}  // namespace lockstep
