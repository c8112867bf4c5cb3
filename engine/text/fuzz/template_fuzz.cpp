// Any bytes as a template, and behind a line of "====" as its variables: rendered or refused within
// limits.
#include "engine/base/error.h"
#include "engine/text/chat_request.h"
#include "engine/text/chat_template.h"
#include "engine/text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  constexpr std::string_view kBorder = "\n====\n";
  const size_t border = input.find(kBorder);
  const std::string_view source = input.substr(0, border);
  const std::string_view variables =
      border == std::string_view::npos
          ? std::string_view("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}")
          : input.substr(border + kBorder.size());
  lockstep::TemplateOptions options;
  options.limits = {.max_steps = 20'000,
                    .max_output_bytes = 1 << 18,
                    .max_memory_bytes = 4 << 20,
                    .max_range = 1000};
  try {
    const lockstep::ChatTemplate chat_template(source, "fuzz", options);
    LOCKSTEP_CHECK(lockstep::is_valid_utf8(chat_template.render(variables, 0)));
    lockstep::render_chat(chat_template, variables);
  } catch (const lockstep::Error&) {
  }
  return 0;
}
