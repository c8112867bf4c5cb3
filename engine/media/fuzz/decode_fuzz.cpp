// Any bytes: a picture within the limits, or an Error.
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/base/error.h"
#include "engine/media/decode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::ImageLimits limits;
  limits.max_pixels = 1 << 18;  // keeps one run short
  try {
    const lockstep::Image image =
        lockstep::decode_image(std::as_bytes(std::span(data, size)), "input", limits);
    const auto n = static_cast<size_t>(image.width * image.height);
    LOCKSTEP_CHECK(n >= 1 && n <= (size_t{1} << 18) && image.rgb.size() == 3 * n);
  } catch (const lockstep::Error&) {
  }
  return 0;
}
