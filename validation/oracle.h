// The oracle: what an independent implementation computed in float32 for a set of prompts. Read
// from PREFIX.json and PREFIX.safetensors (tensors NAME/TAP). Both files are untrusted: every
// count, range and reference is checked, and a broken file gives one clear line and exit code 3.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "validation/tap_file.h"

namespace lockstep {

// How far the oracle's own bfloat16 run lies from its float32 run at one tap.
struct TapNoise {
  double cos = 1;     // worst cosine of one position
  double rel_l2 = 0;  // over the recorded positions together
};

struct OraclePrompt {
  std::string name;  // letters, digits, '.', '_' and '-'; it names files
  bool has_image = false;
  bool in_scope =
      true;  // false: the model cannot see, and the prompt is left out (leave_images_out)
  std::vector<std::filesystem::path> images;  // PREFIX-NAME.png, or PREFIX-NAME-0.png, -1.png, ...
  bool resized = false;                       // the processor resampled a picture
  std::optional<int64_t> rope_delta;
  std::vector<int32_t> ids;
  std::vector<int32_t> greedy;  // generated tokens, running on through end-of-turn
  std::string greedy_text;      // of them, special tokens too; empty when not recorded
  std::vector<double> margin;   // top-1 minus top-2 logit per generated token
  std::vector<int32_t> second;  // the runner-up's id
  std::vector<double> logprob;  // of the generated token, over the whole vocabulary
  std::vector<std::vector<int32_t>> mtp_drafts;  // by step; empty when not recorded
  std::map<std::string, TapNoise> bf16_noise;
  TapMap
      taps;  // of the prompt, "decode/...", "state/...", "image/...", vision_embeds, pixel_values

  // Noise at `tap`; "decode/X" and "image/X" have that of "X". Null when the oracle does not record
  // it.
  const TapNoise* noise_at(const std::string& tap) const;
  bool has_state() const;
  // greedy_text as engines show it: special tokens ("<|im_end|>") left out.
  std::string shown_text() const;
};

struct Oracle {
  std::string prefix;
  int64_t tail = 0;  // recorded positions at the prompt's end
  std::vector<OraclePrompt> prompts;
};

// `prefix` is the path without ".json".
Oracle read_oracle(const std::filesystem::path& prefix);

// Puts the image prompts out of scope when config.json of the model describes no vision tower.
void leave_images_out(Oracle& oracle, const std::filesystem::path& model);

}  // namespace lockstep
