// The picture side of a checkpoint: reads pictures as its preprocessor_config.json says.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/media/patches.h"
#include "engine/model/config.h"
#include "engine/rank/request.h"

namespace lockstep {

inline constexpr size_t kMaxImages = 64;  // of one prompt

class ImageReader {
 public:
  // A folder without a vision tower or preprocessor_config.json reads no pictures. Throws Error
  // when the two disagree about patch sizes.
  ImageReader(const std::filesystem::path& model_dir, const ModelConfig& config);

  // Throw Error that names the picture and what is wrong with it.
  std::shared_ptr<const ImagePatches> read_file(const std::filesystem::path& path) const;
  std::shared_ptr<const ImagePatches> read_data_url(std::string_view url,
                                                    const std::string& label) const;

  // Throws Error when the pictures have more tokens than the model has positions: called after
  // every picture, so that a long list cannot fill the memory.
  void check_total(const ImageList& images, const std::string& label) const;

 private:
  const PreprocessorConfig& preprocessor(const std::string& label) const;

  std::string dir_;
  int64_t max_tokens_;
  std::optional<PreprocessorConfig> preprocessor_;
};

// Takes the pictures out of the body of a chat-completions request: parts of type image_url or
// image with a data URL in `image_url`, `image_url.url` or `image`; a part of type image without
// one takes the next of `files`. The URLs in `body_json` become empty, so that the template need
// not carry them. Throws Error for URLs of other kinds, for video, and for files that no part
// takes.
ImageList take_chat_images(std::string& body_json, const ImageList& files,
                           const ImageReader& reader);

// A user's turn that shows `n_images` pictures and then asks `question`, without thinking: the body
// of a chat-completions request.
std::string image_question_body(size_t n_images, const std::string& question);

}  // namespace lockstep
