// Resampling as the reference processor does it, to the last code.
#pragma once

#include <cstdint>
#include <string>

#include "engine/media/image.h"

namespace lockstep {

struct ImageSize {
  int64_t width = 0;
  int64_t height = 0;
};

// The size that a picture is resampled to: both sides rounded (half to even) to multiples of
// `factor`; where the area is then above max_pixels or below min_pixels, the picture is scaled to
// fit first, sides rounded down or up. Throws Error for a picture more than 200 times as long as
// wide. Source: smart_resize of the qwen2_vl image processor in Hugging Face transformers.
ImageSize model_image_size(ImageSize stored, int64_t factor, int64_t min_pixels, int64_t max_pixels,
                           const std::string& label);

// Bicubic with antialiasing (Keys' kernel, a = -0.5, widened when shrinking), first along rows,
// then along columns, rounded to 8 bits after each. Weights are 16-bit integers with as many
// fraction bits as the largest allows, as torchvision resamples 8-bit pictures on a CPU; Pillow
// keeps more bits and gives another code in about 0.2 % of the values.
Image resize_bicubic(const Image& image, ImageSize size);

}  // namespace lockstep
