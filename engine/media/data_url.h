// Pictures that arrive inside a request: "data:image/png;base64,...".
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The bytes of a base64 data URL. Throws Error that starts with `label` for every other URL
// (nothing is fetched from a network), for a media type that is not an image, and for text that is
// not base64.
std::vector<std::byte> decode_data_url(std::string_view url, const std::string& label,
                                       size_t max_bytes);

bool is_data_url(std::string_view text);

// The other way round: "data:image/*;base64,...", which decode_data_url reads.
std::string encode_data_url(std::span<const std::byte> bytes);

}  // namespace lockstep
