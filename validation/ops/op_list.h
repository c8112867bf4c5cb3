// The list of op test programs that a CUDA build leaves beside them. Format:
// docs/formats/op-tests.md.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

inline constexpr int kOpListVersion = 1;

struct OpProgram {
  std::string program;
  std::vector<std::string> ops;  // folders of engine/ops whose kernels it tests
};

struct OpMutant {
  std::string name;
  int number = 0;  // what arms it
  std::string op;  // whose kernels hold it
};

struct OpList {
  std::filesystem::path folder;  // of the programs
  std::vector<OpProgram> programs;
  std::vector<std::string> sanitizer_sample;  // patterns of cases, with * for any text
  std::string mutant_program;
  std::vector<OpMutant> mutants;

  // Ops that some program tests.
  std::set<std::string> ops() const;
};

// FOLDER/op_tests.json. Throws Error that names what is wrong with it.
OpList read_op_list(const std::filesystem::path& folder);

// Does `text` fit a pattern in which * stands for any text?
bool fits_pattern(std::string_view text, std::string_view pattern);

}  // namespace lockstep
