#include "engine/text/chat_template.h"

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/text/jinja/context.h"
#include "engine/text/jinja/evaluator.h"
#include "engine/text/jinja/parser.h"

namespace lockstep {
namespace {

// Older checkpoints keep the template in tokenizer_config.json, some as a list of named ones.
std::string template_of_config(const std::filesystem::path& path) {
  const auto config = nlohmann::json::parse(read_text_file(path), nullptr, false);
  if (!config.is_object()) fail("{}: not a JSON object", path.string());
  const nlohmann::json found = config.value("chat_template", nlohmann::json());
  if (found.is_string()) return found.get<std::string>();
  if (found.is_array()) {
    for (const auto& entry : found) {
      if (entry.is_object() && entry.value("name", nlohmann::json()) == "default" &&
          entry.contains("template") && entry["template"].is_string()) {
        return entry["template"].get<std::string>();
      }
    }
  }
  fail("{}: no chat_template here and no chat_template.jinja beside it", path.string());
}

// The variables that Hugging Face makes of the special tokens: those that are set.
std::string special_tokens_of_config(const std::filesystem::path& path) {
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  if (!std::filesystem::exists(path)) return variables.dump();
  const auto config = nlohmann::json::parse(read_text_file(path), nullptr, false);
  if (!config.is_object()) fail("{}: not a JSON object", path.string());
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    const nlohmann::json token = config.value(name, nlohmann::json());
    if (token.is_string()) variables[name] = token;
    if (token.is_object() && token.contains("content")) variables[name] = token["content"];
  }
  return variables.dump();
}

}  // namespace

struct ChatTemplate::State {
  std::string name;
  TemplateLimits limits;
  jinja::Block block;
  std::string default_variables_json = "{}";
};

ChatTemplate ChatTemplate::load(const std::filesystem::path& model_dir,
                                const TemplateOptions& options) {
  const std::filesystem::path file = model_dir / "chat_template.jinja";
  const std::filesystem::path config = model_dir / "tokenizer_config.json";
  const bool has_file = std::filesystem::exists(file);
  ChatTemplate result(has_file ? read_text_file(file) : template_of_config(config),
                      (has_file ? file : config).string(), options);
  result.state_->default_variables_json = special_tokens_of_config(config);
  return result;
}

ChatTemplate::ChatTemplate(std::string_view source, std::string name,
                           const TemplateOptions& options)
    : state_(std::make_unique<State>()) {
  state_->name = std::move(name);
  state_->limits = options.limits;
  try {
    state_->block = jinja::parse_template(source, {options.trim_blocks, options.lstrip_blocks});
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", state_->name, error.what()), error.code());
  }
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::string ChatTemplate::render(std::string_view context_json,
                                 std::optional<int64_t> now_unix_s) const {
  return render_with(
      [&](jinja::Runtime& runtime, jinja::Scope* scope) {
        jinja::add_json_variables(runtime, context_json, scope);
      },
      now_unix_s);
}

std::string ChatTemplate::render_with(
    const std::function<void(jinja::Runtime&, jinja::Scope*)>& add_variables,
    std::optional<int64_t> now_unix_s) const {
  jinja::Runtime runtime(state_->limits);
  runtime.has_now = now_unix_s.has_value();
  runtime.now_unix_s = now_unix_s.value_or(0);
  jinja::Scope* variables = runtime.arena.new_scope(nullptr);
  jinja::add_json_variables(runtime, state_->default_variables_json, variables);
  add_variables(runtime, variables);
  try {
    return jinja::Evaluator(&runtime, variables).render(state_->block);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", state_->name, error.what()), error.code());
  }
}

}  // namespace lockstep
