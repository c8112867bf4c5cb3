// Planted faults live in lockstep-rank-faulty and in no program that ships.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "ci/checks/elf_image.h"
#include "engine/base/error.h"
#include "engine/base/fault.h"

namespace lockstep {
namespace {

const std::filesystem::path kBinDir = LOCKSTEP_BIN_DIR;

// Parts of mangled names, which the symbol table holds.
std::vector<std::string> fault_traces() {
  std::vector<std::string> traces = {"fault_fires", "select_fault", "fault_points", "fault_firings",
                                     "fault_selected"};
  for (const FaultPoint& point : fault_points()) traces.emplace_back(point.name);
  return traces;
}

std::vector<std::string> found_in(const std::string& bytes, const std::vector<std::string>& texts) {
  std::vector<std::string> found;
  for (const std::string& text : texts) {
    if (bytes.find(text) != std::string::npos) found.push_back(text);
  }
  return found;
}

std::vector<std::string> release_programs() {
  std::vector<std::string> names;
  std::istringstream stream(LOCKSTEP_RELEASE_PROGRAMS);
  for (std::string name; std::getline(stream, name, ',');) names.push_back(name);
  return names;
}

TEST(SymbolScan, ReleaseProgramsHoldNoFault) {
  const std::vector<std::string> names = release_programs();
  ASSERT_GE(names.size(), 2u);
  for (const std::string& name : names) {
    const std::string bytes = undebugged_sections(kBinDir / name);
    EXPECT_EQ(found_in(bytes, fault_traces()), std::vector<std::string>{}) << name;
    // The scan reads symbol names: main is one.
    EXPECT_NE(bytes.find("main"), std::string::npos) << name;
  }
}

TEST(SymbolScan, TheFaultyRankHoldsEveryFault) {
  const std::string bytes = undebugged_sections(kBinDir / "lockstep-rank-faulty");
  EXPECT_EQ(found_in(bytes, fault_traces()), fault_traces());
}

TEST(SymbolScan, RefusesWhatIsNoProgram) {
  EXPECT_THROW(undebugged_sections(LOCKSTEP_SOURCE_DIR "/README.md"), Error);
  EXPECT_THROW(undebugged_sections(kBinDir / "no-such-program"), Error);
  EXPECT_THROW(undebugged_sections_of("\x7f"
                                      "ELF",
                                      "four bytes"),
               Error);
}

}  // namespace
}  // namespace lockstep
