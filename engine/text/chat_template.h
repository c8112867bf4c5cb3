// Renders a checkpoint's chat template: the part of Jinja2 that published templates use, with the
// environment that Hugging Face gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

namespace jinja {
class Runtime;
struct Scope;
}  // namespace jinja

// A rendering that passes one of these ends in an Error with the template's line. The defaults are
// far above what a template does for a long conversation.
struct TemplateLimits {
  int64_t max_steps = 30'000'000;               // evaluated nodes, plus work on long strings
  size_t max_output_bytes = size_t{64} << 20;   // of the rendered prompt or of a captured block
  size_t max_memory_bytes = size_t{512} << 20;  // of all values made on the way, garbage included
  size_t max_range = 100'000;                   // as Jinja2's sandbox has it
};

struct TemplateOptions {
  // Jinja2's environment settings; published templates are written for both on.
  bool trim_blocks = true;
  bool lstrip_blocks = true;
  TemplateLimits limits;
};

class ChatTemplate {
 public:
  // Reads chat_template.jinja of a checkpoint folder, or else the chat_template of its
  // tokenizer_config.json. Throws Error that names the file, and for a template that uses what this
  // engine does not support, the construct and its line. The special tokens of
  // tokenizer_config.json (bos_token, eos_token ...) become variables.
  static ChatTemplate load(const std::filesystem::path& model_dir,
                           const TemplateOptions& options = {});

  // `name` stands for the file in errors.
  ChatTemplate(std::string_view source, std::string name, const TemplateOptions& options = {});
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // Renders with the members of the JSON object `context_json` as variables. `now_unix_s` is the
  // UTC time that strftime_now prints; without it, a template that asks for the date is an error,
  // because two ranks must not look at their clocks. Throws Error "NAME: line N: ...", also for
  // what the template itself raises. Safe to call from several threads.
  std::string render(std::string_view context_json,
                     std::optional<int64_t> now_unix_s = std::nullopt) const;

  // The same with variables that `add_variables` puts into the scope; for render_chat
  // (engine/text/chat_request.h).
  std::string render_with(const std::function<void(jinja::Runtime&, jinja::Scope*)>& add_variables,
                          std::optional<int64_t> now_unix_s) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
