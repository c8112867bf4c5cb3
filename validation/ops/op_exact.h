// Integer-exact cases of the ops: what a card answers and what the host computes are the same bits.
// lockstep-ops-exact makes both; this judges.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "validation/receipt/source_digest.h"

namespace lockstep {

struct CardFacts {
  std::string name;
  std::string uuid;
  std::string driver;  // the newest CUDA that it speaks, "13.0"
  int arch = 0;        // 90 for sm_90
  int n_multiprocessors = 0;
};

struct ExactOutput {
  std::string op;
  std::string name;
  std::string seed;  // 16 hexadecimal digits
  int64_t n_values = 0;
  std::string digest;        // 128 bits, of all values as float32
  std::vector<double> head;  // the first of them, for people

  bool same_as(const ExactOutput& other) const {
    return seed == other.seed && n_values == other.n_values && digest == other.digest;
  }
};

struct ExactReport {
  CardFacts card;  // of backend cuda
  std::vector<ExactOutput> outputs;
};

// Op -> seed of its cases: the first 16 digits of its sources' digest.
std::map<std::string, std::string> exact_seeds(const SourceUnits& units);

// Runs `program` for these ops. Throws Error with the program's words; ExitCode::skipped when it
// finds no card.
ExactReport run_exact(const std::filesystem::path& program, const std::string& backend,
                      const std::map<std::string, std::string>& seeds);

// The card alone. Throws as above.
CardFacts read_card(const std::filesystem::path& program);

// Op -> how the card's outputs differ from the host's; empty when they do not. An op for which the
// host has cases and the card gave no output is a difference.
std::map<std::string, std::string> exact_differences(const std::vector<ExactOutput>& card,
                                                     const std::vector<ExactOutput>& host);

// Both forms of "exact" in receipts.
std::string exact_json(const std::vector<ExactOutput>& outputs);
// Throws Error that names `label`.
std::vector<ExactOutput> parse_exact(const std::string& json, const std::string& label);

}  // namespace lockstep
