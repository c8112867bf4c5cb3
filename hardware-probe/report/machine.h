// The machine below a benchmark or a gate, as its probe profile describes it: what to store beside
// the numbers, and whether to doubt them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::probe {

struct MachineRecord {
  std::string digest;   // of the profile; empty without one
  std::string verdict;  // of the probe
  std::string summary;  // one line for people
  // The profile's marks, and "simulated" or "elsewhere" when it is not of this machine, or
  // "unproven" when GPUs are here and no profile was given. Empty: nothing to doubt.
  std::vector<std::string> marks;
  std::string profile_json = "null";  // the profile itself

  bool doubtful() const { return !marks.empty(); }
  // "2 x H200-SXM, read 4519 GB/s, ...", with "DOUBTFUL (throttled): " before it when it is.
  std::string line() const;
  std::string to_json() const;  // one JSON object
};

// `profile`: a file of `lockstep probe --profile`, or empty for none. `gpus`: where the driver
// lists its cards. Throws Error (usage) that names the file when it is no profile.
MachineRecord read_machine(const std::filesystem::path& profile,
                           const std::filesystem::path& gpus = "/proc/driver/nvidia/gpus");

}  // namespace lockstep::probe
