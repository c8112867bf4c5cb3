// Speculation that drafts badly changes no text, only speed: the share of drafts that are taken is
// held against a baseline's, with a confidence interval.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "validation/exam/paired.h"

namespace lockstep {

struct PromptAcceptance {
  std::string name;
  int64_t drafted = 0;
  int64_t accepted = 0;
};

struct AcceptanceReport {
  double run = 0;       // accepted / drafted over all prompts
  double baseline = 0;  // the same
  Interval interval;    // 90 % of run - baseline, prompts being what was drawn
  int64_t n_prompts = 0;
  double margin = 0;
  // SAME inside the margin, WORSE when the whole interval lies below zero, BETTER above it, else
  // UNDECIDED.
  PairedVerdict verdict = PairedVerdict::undecided;
};

// Pairs prompts by name; a delete-one-prompt jackknife of the difference of the pooled shares gives
// its error, since rounds of one prompt are not independent. Throws Error (exit 3) when the runs
// hold other prompts, or fewer than two with drafts.
AcceptanceReport judge_acceptance(const std::vector<PromptAcceptance>& run,
                                  const std::vector<PromptAcceptance>& baseline, double margin);

// What an oracle recorded (prompts with drafts for every step), or a store of store_acceptance.
std::vector<PromptAcceptance> read_acceptance(const std::filesystem::path& path);
std::string store_acceptance(const std::vector<PromptAcceptance>& prompts);

// 95 % quantile of Student's t.
double student_t95(int64_t degrees_of_freedom);

std::string acceptance_text(const AcceptanceReport& report);
std::string acceptance_json(const AcceptanceReport& report);

}  // namespace lockstep
