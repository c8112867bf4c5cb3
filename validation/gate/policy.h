// A gate's policy: which checks it makes and which of them must pass. Format:
// docs/formats/policy.md.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

inline constexpr int kPolicyVersion = 1;

struct PolicyCheck {
  std::string id;
  bool required = true;  // false: a skip is listed but does not lower the verdict
};

struct Policy {
  std::string name;
  std::string backend = "cpu";  // of every engine run
  std::vector<PolicyCheck> checks;
  int n_mutants = 0;                     // of the catalogue; -1 for all of them
  bool accepts_waivers = true;           // false: a waiver that is needed is a FAIL
  std::vector<std::string> not_checked;  // out of scope, with the reason
};

// "quick", "full", "gpu", "release".
std::vector<std::string> built_in_policies();

// A built-in policy's name, or a file. Throws Error that names what is wrong with it.
Policy load_policy(const std::string& name_or_file);

// Throws Error that names `label`. Ids of checks are looked up by the gate.
Policy parse_policy(const std::string& json, const std::string& label);

}  // namespace lockstep
