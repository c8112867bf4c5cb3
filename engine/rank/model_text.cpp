#include "engine/rank/model_text.h"

#include "engine/base/error.h"
#include "engine/text/chat_request.h"
#include "engine/text/detokenizer.h"
#include "engine/text/stop_strings.h"

namespace lockstep {
namespace {

class TextStopWatcher final : public StopWatcher {
 public:
  TextStopWatcher(const Tokenizer& tokenizer, const std::vector<std::string>& stops)
      : detokenizer_(tokenizer), stops_(stops) {}

  bool accept(int32_t token) override {
    stops_.push(detokenizer_.push(token));
    return stops_.matched().has_value();
  }

 private:
  Detokenizer detokenizer_;
  StopStrings stops_;
};

}  // namespace

ModelText::ModelText(const std::filesystem::path& model_dir) : dir_(model_dir) {
  if (!std::filesystem::exists(model_dir / "tokenizer.json")) return;
  tokenizer_ = Tokenizer::load(model_dir);
  const bool has_template = std::filesystem::exists(model_dir / "chat_template.jinja") ||
                            std::filesystem::exists(model_dir / "tokenizer_config.json");
  if (has_template) chat_template_ = ChatTemplate::load(model_dir);
}

const Tokenizer& ModelText::tokenizer() const {
  if (!tokenizer_) fail("{}: has no tokenizer.json; give token ids instead of text", dir_.string());
  return *tokenizer_;
}

std::string ModelText::render(std::string_view body_json, std::optional<int64_t> now_unix_s) const {
  if (!chat_template_) fail("{}: has no chat template; use a plain prompt", dir_.string());
  return render_chat(*chat_template_, body_json, now_unix_s);
}

std::shared_ptr<StopWatcher> ModelText::watch(const std::vector<std::string>& stops) const {
  if (stops.empty()) return nullptr;
  return std::make_shared<TextStopWatcher>(tokenizer(), stops);
}

std::string ModelText::decode(const std::vector<int32_t>& ids,
                              const std::vector<std::string>& stops) const {
  const std::string text = tokenizer().decode(ids, true);
  if (stops.empty()) return text;
  StopStrings cutter(stops);
  std::string shown = cutter.push(text);
  return shown + cutter.finish();
}

}  // namespace lockstep
