#include "engine/rank/image_reader.h"

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/media/data_url.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// The member that holds a part's picture, or null.
Json* url_of(Json& part) {
  for (const char* key : {"image_url", "image"}) {
    if (!part.contains(key)) continue;
    Json& value = part[key];
    if (value.is_string()) return &value;
    if (value.is_object() && value.contains("url") && value["url"].is_string())
      return &value["url"];
  }
  return nullptr;
}

bool has_type(const Json& part, const char* type) {
  return part.contains("type") && part["type"] == type;
}

class ChatImages {
 public:
  ChatImages(const ImageList& files, const ImageReader& reader) : files_(files), reader_(reader) {}

  void take(Json& part, const std::string& where) {
    if (!part.is_object()) return;
    if (has_type(part, "video") || has_type(part, "video_url") || part.contains("video")) {
      fail("{}: video is not supported; send still pictures", where);
    }
    Json* url = url_of(part);
    const bool image = url != nullptr || has_type(part, "image") || has_type(part, "image_url");
    if (!image) return;
    if (images_.size() == kMaxImages) fail("{}: more than {} pictures", where, kMaxImages);
    if (url != nullptr) {
      images_.push_back(reader_.read_data_url(url->get_ref<const std::string&>(), where));
      *url = "";
    } else if (n_taken_ < files_.size()) {
      images_.push_back(files_[n_taken_++]);
    } else {
      fail("{}: holds no picture", where);
    }
    reader_.check_total(images_, where);
  }

  ImageList finish() {
    if (n_taken_ != files_.size()) {
      fail("images: {} pictures for {} image parts without one", files_.size(), n_taken_);
    }
    return std::move(images_);
  }

 private:
  const ImageList& files_;
  const ImageReader& reader_;
  ImageList images_;
  size_t n_taken_ = 0;
};

}  // namespace

ImageReader::ImageReader(const std::filesystem::path& model_dir, const ModelConfig& config)
    : dir_(model_dir.string()), max_tokens_(config.max_positions) {
  if (!config.vision || !std::filesystem::exists(model_dir / "preprocessor_config.json")) return;
  preprocessor_ = load_preprocessor_config(model_dir);
  const VisionConfig& vision = *config.vision;
  const bool fits = preprocessor_->patch_size == vision.patch_size &&
                    preprocessor_->temporal_patch_size == vision.temporal_patch_size &&
                    preprocessor_->merge_size == vision.spatial_merge_size;
  if (!fits) {
    fail(
        "{}: preprocessor_config.json and config.json differ in patch_size, temporal_patch_size or "
        "the merge size",
        dir_);
  }
}

void ImageReader::check_total(const ImageList& images, const std::string& label) const {
  int64_t n_tokens = 0;
  for (const auto& image : images) n_tokens += image->n_tokens();
  if (n_tokens > max_tokens_) {
    fail("{}: the pictures take {} tokens, the model has {} positions", label, n_tokens,
         max_tokens_);
  }
}

const PreprocessorConfig& ImageReader::preprocessor(const std::string& label) const {
  if (!preprocessor_) {
    fail("{}: {} has no vision tower with preprocessor_config.json; send text alone", label, dir_);
  }
  return *preprocessor_;
}

std::shared_ptr<const ImagePatches> ImageReader::read_file(
    const std::filesystem::path& path) const {
  const PreprocessorConfig& config = preprocessor(path.string());
  const MappedFile file(path);
  return std::make_shared<const ImagePatches>(
      read_image_patches(file.bytes(), config, path.string()));
}

std::shared_ptr<const ImagePatches> ImageReader::read_data_url(std::string_view url,
                                                               const std::string& label) const {
  const PreprocessorConfig& config = preprocessor(label);
  const std::vector<std::byte> bytes = decode_data_url(url, label, ImageLimits().max_bytes);
  return std::make_shared<const ImagePatches>(read_image_patches(bytes, config, label));
}

ImageList take_chat_images(std::string& body_json, const ImageList& files,
                           const ImageReader& reader) {
  Json body = Json::parse(body_json, nullptr, false);
  ChatImages images(files, reader);
  // What else is wrong with the body, the renderer says.
  const bool has_messages =
      body.is_object() && body.contains("messages") && body["messages"].is_array();
  for (size_t i = 0; has_messages && i < body["messages"].size(); ++i) {
    Json& message = body["messages"][i];
    if (!message.is_object() || !message.contains("content")) continue;
    Json& content = message["content"];
    for (size_t k = 0; content.is_array() && k < content.size(); ++k) {
      images.take(content[k], fmt::format("messages[{}].content[{}]", i, k));
    }
  }
  ImageList found = images.finish();
  if (!found.empty()) body_json = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  return found;
}

std::string image_question_body(size_t n_images, const std::string& question) {
  Json content = Json::array();
  for (size_t i = 0; i < n_images; ++i) content.push_back({{"type", "image"}});
  content.push_back({{"type", "text"}, {"text", question}});
  Json body;
  body["messages"] = Json::array({{{"role", "user"}, {"content", content}}});
  body["chat_template_kwargs"] = {{"enable_thinking", false}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep
