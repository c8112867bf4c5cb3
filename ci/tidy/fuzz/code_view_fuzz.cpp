// Any text: the code view keeps length and line breaks, and the function scan ends inside it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ci/tidy/code_view.h"
#include "engine/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), n_bytes);
  const std::string code = lockstep::tidy::code_view(text);
  LOCKSTEP_CHECK(code.size() == text.size());
  LOCKSTEP_CHECK(std::count(code.begin(), code.end(), '\n') ==
                 std::count(text.begin(), text.end(), '\n'));
  for (const auto& body : lockstep::tidy::find_functions(code)) {
    LOCKSTEP_CHECK(body.begin < text.size() && body.begin < body.end && body.end <= text.size());
  }
  return 0;
}
