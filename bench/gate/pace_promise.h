// What `lockstep bench gate` would say of builds whose difference is known: how often it calls
// equal ones SLOWER, and how often it finds a planted slowdown.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/gate/pace.h"

namespace lockstep {

// How seconds of equal processes vary, as shares of the mean.
struct PaceNoise {
  std::string name;
  double white = 0;          // each process by itself
  double drift = 0;          // deviation of a first-order chain over processes in turn
  double memory = 0;         // what it keeps from one process to the next
  double process = 0;        // what a process has by its place in memory
  double outlier_share = 0;  // processes that a neighbour disturbs
  double outlier_size = 0;   // up to so much slower
};

// The noises of the design's study: white; with drift; with offsets of processes; strong drift.
const std::vector<PaceNoise>& pace_noises();

struct PaceCount {
  int64_t n_gates = 0;
  int64_t n_slower = 0;
  int64_t n_ambiguous = 0;
  double mean_quads = 0;
  double slower_share() const {
    return static_cast<double>(n_slower) / static_cast<double>(n_gates);
  }
};

// Gates of two builds of which B takes 1 + `slowdown` times as long.
PaceCount simulate_gates(const PaceNoise& noise, double slowdown, int64_t n_gates, uint64_t seed,
                         const PaceRule& rule);

// The same with the noise of quads that a machine measured: their differences without their median,
// drawn with replacement, each with a sign of its own.
PaceCount resample_gates(const std::vector<double>& differences, double slowdown, int64_t n_gates,
                         uint64_t seed, const PaceRule& rule);

struct SelfTestRow {
  std::string noise;
  double slowdown = 0;
  PaceCount count;
};

// Every noise without a slowdown and with some.
std::vector<SelfTestRow> self_test(int64_t n_gates, uint64_t seed, const PaceRule& rule);

// What the rule promises: of equal builds at most 1 % are called slower, of those that are slower
// by rule.found at least 95 % are found. Empty when it holds; else the row that breaks it.
std::string broken_promise(const std::vector<SelfTestRow>& rows, const PaceRule& rule);

}  // namespace lockstep
