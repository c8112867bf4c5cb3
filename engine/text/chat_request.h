// From the body of a chat-completions request to a prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/text/chat_template.h"

namespace lockstep {

// Renders the request with the template, generation prompt included. The template sees `messages`
// and `tools` as they are in the body (parts of a content list too), except that tool-call
// arguments that arrive as JSON text are parsed first; the members of `chat_template_kwargs` as
// variables; and `reasoning_effort`. `chat_template_kwargs.add_generation_prompt` false leaves the
// generation prompt away. Throws Error that names the member of the body that is wrong, or the
// template's line.
std::string render_chat(const ChatTemplate& chat_template, std::string_view body_json,
                        std::optional<int64_t> now_unix_s = std::nullopt);

}  // namespace lockstep
