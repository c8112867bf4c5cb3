// The pictures of one prompt: where their pads stand, which rope positions they take, and the rows
// that replace the pads' embeddings.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/media/patches.h"
#include "engine/model/config.h"
#include "engine/rank/layers.h"
#include "engine/rank/prefix_cache.h"
#include "engine/rank/request.h"
#include "engine/rank/taps.h"

namespace lockstep {

// A prompt with one pad for each picture becomes one with as many pads as the picture has tokens.
// Throws Error that starts with `where` when pads and pictures do not match in number.
std::vector<int32_t> expand_image_pads(const std::vector<int32_t>& ids, const ImageList& images,
                                       const ModelConfig& config, const std::string& where);

// Throws Error that starts with `where` when the pads of a prompt do not match its pictures, when
// the model cannot see, or when the prompt holds video.
void check_prompt_images(const std::vector<int32_t>& prompt, const ImageList& images,
                         const ModelConfig& config, bool has_tower, const std::string& where);

class PromptImages {
 public:
  PromptImages() = default;  // a prompt of text alone
  // The prompt must have passed check_prompt_images.
  PromptImages(const std::vector<int32_t>& prompt, const ImageList& images,
               const ModelConfig& config);

  bool empty() const { return images_.empty(); }

  // What the prefix cache tells prompts apart by: token ids, and for pads picture and index in it.
  ContentKeys content_keys(const std::vector<int32_t>& prompt) const;

  // Rope positions of the whole prompt and the offset of what follows it. Text: all three axes
  // advance together. A picture that starts at position s has T = s, H = s + row, W = s + column
  // over the merged grid; what follows it goes on at s plus the longer side.
  void place(Sequence& sequence, int64_t n_prompt_tokens) const;

  // Prompt positions whose "image/" taps are recorded: the first and the last three pads, and the
  // two positions after the last.
  const std::vector<int64_t>& tap_rows() const { return tap_rows_; }

  // For prompt positions [begin, end): the row that stands in for the token's embedding, or null.
  // Empty when all are null. Runs the tower for pictures whose rows are needed the first time.
  std::vector<const float*> rows(const Model& model, int64_t begin, int64_t end, TapRecorder* taps);

  // Frees the rows; the prompt is done.
  void release() { rows_ = {}; }

 private:
  struct Placed {
    std::shared_ptr<const ImagePatches> patches;
    int64_t first_position;  // of its pads
    int64_t first_row;       // among the rows of all pictures
    bool computed = false;
    int64_t end_position() const { return first_position + patches->n_tokens(); }
  };
  void compute(const Model& model, Placed& image, TapRecorder* taps);

  std::vector<Placed> images_;
  std::vector<int64_t> tap_rows_;
  int64_t n_rows_ = 0;
  std::vector<float> rows_;  // [n_rows_, hidden]
};

}  // namespace lockstep
