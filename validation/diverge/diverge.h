// Runs two engines on the same prompts and judges where and how far they part.
#pragma once

#include <string>
#include <vector>

#include "validation/diverge/fork_judge.h"
#include "validation/diverge/side.h"

namespace lockstep {

struct DivergeOptions {
  SideOptions side_a;
  SideOptions side_b;
  std::filesystem::path
      checkpoint;  // for the scale of logits; empty: tolerance::kTypicalLogitScale
  int max_tokens = 96;
  int n_local = 4;  // prompts whose operations are looked at one by one; 0 for none
  JudgeOptions judge;
};

struct PromptDivergence {
  ForkEvidence evidence;
  ForkJudgement judgement;
  std::string text_a;
  std::string text_b;
};

struct DivergeReport {
  std::string label_a;
  std::string label_b;
  std::string declared;
  std::string scale_source;  // where the scale of logits comes from
  bool has_local = false;
  std::vector<PromptDivergence> prompts;
  ForkJudgement judgement;
};

// PREFIX.json of an oracle (its text prompts), or a .jsonl of {"name", "ids" | "prompt"}. Throws
// Error (exit 3).
std::vector<DivergePrompt> read_prompts(const std::filesystem::path& path);

DivergeReport diverge(Side& a, Side& b, const std::vector<DivergePrompt>& prompts,
                      const DivergeOptions& options);

std::string diverge_text(const DivergeReport& report, bool colour);
std::string diverge_json(const DivergeReport& report);
std::string diverge_html(const DivergeReport& report);

}  // namespace lockstep
