// EXIF orientation: which way up a camera held the picture.
#pragma once

#include <cstddef>
#include <span>

#include "engine/media/image.h"

namespace lockstep {

// The orientation tag (1 to 8) of the first directory of a TIFF block, with or without the
// "Exif\0\0" that stands before it in JPEG. 1 for anything that is not such a block: a damaged tag
// does not make a picture unreadable.
int exif_orientation(std::span<const std::byte> exif);

// The picture as its orientation says it should be seen.
Image upright(Image image, int orientation);

}  // namespace lockstep
