#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "engine/base/error.h"
#include "engine/media/codecs.h"
#include "engine/media/orientation.h"

namespace lockstep {
namespace {

int stored_orientation(const WebPDemuxer* file) {
  WebPChunkIterator chunk;
  int orientation = 1;
  if (WebPDemuxGetChunk(file, "EXIF", 1, &chunk) != 0) {
    orientation = exif_orientation(std::as_bytes(std::span(chunk.chunk.bytes, chunk.chunk.size)));
  }
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

}  // namespace

StoredImage decode_webp(std::span<const std::byte> bytes, const std::string& label,
                        const ImageLimits& limits) {
  const WebPData data{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  const std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> file(WebPDemux(&data),
                                                                      &WebPDemuxDelete);
  if (file == nullptr) fail("{}: not a readable WebP: it is damaged or cut short", label);
  if ((WebPDemuxGetI(file.get(), WEBP_FF_FORMAT_FLAGS) & ANIMATION_FLAG) != 0) {
    fail("{}: is an animation; send a still picture", label);
  }
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data.bytes, data.size, &features) != VP8_STATUS_OK) {
    fail("{}: not a readable WebP: its header is damaged", label);
  }
  const int64_t width = features.width;
  const int64_t height = features.height;
  check_image_size(width, height, label, limits);
  StoredImage stored;
  stored.image = {width, height, std::vector<uint8_t>(static_cast<size_t>(width * height) * 3)};
  if (WebPDecodeRGBInto(data.bytes, data.size, stored.image.rgb.data(), stored.image.rgb.size(),
                        static_cast<int>(3 * width)) == nullptr) {
    fail("{}: not a readable WebP: its picture is damaged or cut short", label);
  }
  stored.orientation = stored_orientation(file.get());
  return stored;
}

}  // namespace lockstep
