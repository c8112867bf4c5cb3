// Checks of options that CLI11 lacks.
#pragma once

namespace CLI {
class Validator;
}

namespace lockstep {

// A number from low to high. CLI::Range lets NaN through, which lies on no side of a border.
CLI::Validator number_in(double low, double high);

}  // namespace lockstep
