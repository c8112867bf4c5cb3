// The command line of lockstep-probe.
#pragma once

#include <optional>
#include <string>

#include "hardware-probe/observe/observations.h"

namespace lockstep::probe {

struct Options {
  Mode mode = Mode::quick;
  std::string sim, replay, record, html, profile, report, claim, nonce, compare, key, public_key;
  bool json = false, list_cards = false, list_faults = false;
  std::string verify;  // report to verify
  std::string step;    // a child's step specification
};

// Empty when the program is done (help, a usage error that was printed); then `exit_code` says how.
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

extern const char* const kProgramVersion;

}  // namespace lockstep::probe
