// Any text: the bytes of a data URL, or an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/base/error.h"
#include "engine/media/data_url.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view url(reinterpret_cast<const char*>(data), size);
  try {
    LOCKSTEP_CHECK(lockstep::decode_data_url(url, "input", size_t{1} << 20).size() <= size);
  } catch (const lockstep::Error&) {
  }
  return 0;
}
