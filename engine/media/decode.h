// From the bytes of a PNG, JPEG or WebP file to RGB, upright.
//
// What the model's processor does with a file, done the same way: EXIF orientation is applied, grey
// and palette become RGB, alpha is dropped (the colour under it stays), of 16-bit channels the high
// byte counts, CMYK becomes RGB without a colour profile. Animations are refused: which frame
// counts would be a guess. A file that is cut short or damaged is refused, never filled up with
// grey.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "engine/media/image.h"

namespace lockstep {

// `label` names the picture in errors. Throws Error with one line for anything that is not a whole,
// still picture within the limits.
Image decode_image(std::span<const std::byte> bytes, const std::string& label,
                   const ImageLimits& limits = {});

}  // namespace lockstep
