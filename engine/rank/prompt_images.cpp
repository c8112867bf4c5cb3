#include "engine/rank/prompt_images.h"

#include <algorithm>

#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/fault.h"
#include "engine/rank/branches.h"
#include "engine/rank/picture_work.h"
#include "engine/rank/vision.h"

namespace lockstep {
namespace {

constexpr uint64_t kImageKey = uint64_t{1} << 63;  // token ids are below it
constexpr size_t kTapPads = 3;                     // at either end of all pads
constexpr int64_t kTapTokensAfter = 2;

int64_t count_pads(const std::vector<int32_t>& ids, const ModelConfig& config) {
  if (!config.image_token_id) return 0;
  return std::count(ids.begin(), ids.end(), *config.image_token_id);
}

}  // namespace

std::vector<int32_t> expand_image_pads(const std::vector<int32_t>& ids, const ImageList& images,
                                       const ModelConfig& config, const std::string& where) {
  const int64_t n_pads = count_pads(ids, config);
  if (n_pads != static_cast<int64_t>(images.size())) {
    fail("{}: the prompt has {} image pads for {} pictures", where, n_pads, images.size());
  }
  if (images.empty()) return ids;
  std::vector<int32_t> expanded;
  size_t image = 0;
  for (const int32_t id : ids) {
    const bool pad = id == *config.image_token_id;
    expanded.insert(expanded.end(), pad ? static_cast<size_t>(images[image++]->n_tokens()) : 1, id);
  }
  return expanded;
}

void check_prompt_images(const std::vector<int32_t>& prompt, const ImageList& images,
                         const ModelConfig& config, bool has_tower, const std::string& where) {
  const bool video = config.video_token_id && std::find(prompt.begin(), prompt.end(),
                                                        *config.video_token_id) != prompt.end();
  if (video) fail("{}: video is not supported; send still pictures", where);
  if (!images.empty() && !has_tower) {
    fail("{}: the checkpoint has no vision tower; send text alone", where);
  }
  int64_t n_tokens = 0;
  for (const auto& image : images) n_tokens += image->n_tokens();
  const int64_t n_pads = count_pads(prompt, config);
  if (n_pads != n_tokens) {
    fail("{}: the prompt has {} image pads, its {} pictures take {}", where, n_pads, images.size(),
         n_tokens);
  }
  // The pads of one picture stand together.
  auto at = prompt.begin();
  for (const auto& image : images) {
    at = std::find(at, prompt.end(), *config.image_token_id);
    for (int64_t i = 0; i < image->n_tokens(); ++i, ++at) {
      if (*at != *config.image_token_id) fail("{}: the pads of a picture are interrupted", where);
    }
  }
}

PromptImages::PromptImages(const std::vector<int32_t>& prompt, const ImageList& images,
                           const ModelConfig& config) {
  std::vector<int64_t> pads;
  for (size_t i = 0; i < prompt.size() && !images.empty(); ++i) {
    if (prompt[i] == *config.image_token_id) pads.push_back(static_cast<int64_t>(i));
  }
  for (const auto& image : images) {
    images_.push_back({image, pads[static_cast<size_t>(n_rows_)], n_rows_});
    n_rows_ += image->n_tokens();
  }
  if (pads.empty()) return;
  const size_t n_ends = std::min(kTapPads, pads.size());
  tap_rows_.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(n_ends));
  tap_rows_.insert(tap_rows_.end(), pads.end() - static_cast<std::ptrdiff_t>(n_ends), pads.end());
  for (int64_t i = 1; i <= kTapTokensAfter; ++i) {
    const int64_t after = pads.back() + i;
    if (after < static_cast<int64_t>(prompt.size())) tap_rows_.push_back(after);
  }
  std::sort(tap_rows_.begin(), tap_rows_.end());
  tap_rows_.erase(std::unique(tap_rows_.begin(), tap_rows_.end()), tap_rows_.end());
}

ContentKeys PromptImages::content_keys(const std::vector<int32_t>& prompt) const {
  ContentKeys keys(prompt.begin(), prompt.end());
  for (const Placed& image : images_) {
    for (int64_t i = 0; i < image.patches->n_tokens(); ++i) {
      const uint64_t key = digest64(std::as_bytes(std::span(&i, 1)), image.patches->digest);
      keys[static_cast<size_t>(image.first_position + i)] = key | kImageKey;
    }
  }
  return keys;
}

void PromptImages::place(Sequence& sequence, int64_t n_prompt_tokens) const {
  if (images_.empty()) return;
  const bool temporal_only = fault_fires("mrope.temporal-only");
  std::vector<RopePosition>& positions = sequence.prompt_positions;
  positions.clear();
  int32_t next = 0;  // position of the next text token
  const auto add_text = [&](int64_t end) {
    while (static_cast<int64_t>(positions.size()) < end) {
      positions.push_back({next, next, next});
      ++next;
    }
  };
  for (const Placed& image : images_) {
    add_text(image.first_position);
    const int64_t merge = image.patches->merge_size;
    const auto n_rows = static_cast<int32_t>(image.patches->grid_height / merge);
    const auto n_columns = static_cast<int32_t>(image.patches->grid_width / merge);
    for (int32_t row = 0; row < n_rows; ++row) {
      for (int32_t column = 0; column < n_columns; ++column) {
        positions.push_back(
            {next, temporal_only ? next : next + row, temporal_only ? next : next + column});
      }
    }
    next += std::max(n_rows, n_columns);
  }
  add_text(n_prompt_tokens);
  sequence.rope_delta = static_cast<int32_t>(next - n_prompt_tokens);
}

std::vector<const float*> PromptImages::rows(const Model& model, int64_t begin, int64_t end,
                                             TapRecorder* taps) {
  std::vector<const float*> found;
  const int64_t hidden = model.config.hidden_size;
  for (Placed& image : images_) {
    const int64_t first = std::max(begin, image.first_position);
    const int64_t last = std::min(end, image.end_position());
    if (first >= last) continue;
    if (!image.computed) compute(model, image, taps);
    found.resize(static_cast<size_t>(end - begin), nullptr);
    for (int64_t position = first; position < last; ++position) {
      int64_t row = image.first_row + position - image.first_position;
      if (fault_fires("vision.images-swapped")) {
        row = (row + images_.front().patches->n_tokens()) % n_rows_;
      }
      found[static_cast<size_t>(position - begin)] = rows_.data() + row * hidden;
    }
  }
  return found;
}

void PromptImages::compute(const Model& model, Placed& image, TapRecorder* taps) {
  const int64_t hidden = model.config.hidden_size;
  rows_.resize(static_cast<size_t>(n_rows_ * hidden));
  const PictureWork work;
  const std::vector<float> rows = vision_forward(model, *image.patches);
  std::copy(rows.begin(), rows.end(), rows_.begin() + image.first_row * hidden);
  image.computed = true;
  if (taps == nullptr) return;
  if (taps->wants("vision_embeds")) {
    taps->put_rows("vision_embeds", image.first_row, rows.data(), image.patches->n_tokens(),
                   hidden);
  }
  if (taps->wants("pixel_values")) {
    const int64_t n = image.patches->n_patches();
    const int64_t merged = n / image.patches->n_tokens();
    const std::vector<float>& values = image.patches->values;
    taps->put_rows("pixel_values", image.first_row * merged, values.data(), n,
                   static_cast<int64_t>(values.size()) / n);
  }
}

}  // namespace lockstep
