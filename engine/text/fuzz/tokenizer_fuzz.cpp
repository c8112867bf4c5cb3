// Any bytes as tokenizer.json: refused with an Error, or a tokenizer whose encoding decodes.
#include "engine/base/error.h"
#include "engine/text/tokenizer.h"
#include "engine/text/unicode/unicode.h"
#include "engine/text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const lockstep::Tokenizer tokenizer = lockstep::Tokenizer::from_json(input, "", "fuzz");
    const std::string text = "It's a te\u0301st <|im_end|> \u0939\u093f 12\n\n  x " +
                             lockstep::replace_invalid_utf8(input.substr(0, 100));
    const std::vector<int32_t> ids = tokenizer.encode(text);
    LOCKSTEP_CHECK(lockstep::is_valid_utf8(tokenizer.decode(ids)));
    for (const int32_t id : ids) LOCKSTEP_CHECK(tokenizer.has_token(id));
  } catch (const lockstep::Error&) {
  }
  return 0;
}
