#include "engine/media/resize.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"

namespace lockstep {
namespace {

constexpr double kMaxAspect = 200.0;
constexpr double kKeysA = -0.5;
constexpr double kKeysRadius = 2.0;
constexpr int kMaxFractionBits = 22;

int64_t nearest_multiple(int64_t value, int64_t factor) {
  const int64_t quotient = value / factor;
  const int64_t twice_rest = 2 * (value % factor);
  const bool up = twice_rest > factor || (twice_rest == factor && quotient % 2 != 0);
  return (quotient + (up ? 1 : 0)) * factor;
}

double keys_kernel(double x) {
  x = std::fabs(x);
  if (x < 1.0) return ((kKeysA + 2.0) * x - (kKeysA + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * kKeysA;
  return 0.0;
}

// For each output index the first input index and the weights of a run of inputs.
struct ResampleTable {
  std::vector<int64_t> first;    // [n_out]
  std::vector<int64_t> n_taps;   // [n_out]
  std::vector<int32_t> weights;  // [n_out, width], 16-bit values
  int64_t width = 0;
  int fraction_bits = 0;
};

ResampleTable make_table(int64_t n_in, int64_t n_out) {
  const double scale = static_cast<double>(n_in) / static_cast<double>(n_out);
  const double stretch = std::max(scale, 1.0);
  const double radius = kKeysRadius * stretch;
  ResampleTable table;
  table.width = static_cast<int64_t>(std::ceil(radius)) * 2 + 1;
  std::vector<double> weights(static_cast<size_t>(n_out * table.width));
  double largest = 0.0;
  for (int64_t i = 0; i < n_out; ++i) {
    const double centre = scale * (static_cast<double>(i) + 0.5);
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(centre - radius + 0.5), 0);
    const int64_t end = std::min(static_cast<int64_t>(centre + radius + 0.5), n_in);
    const int64_t n = std::clamp<int64_t>(end - first, 0, table.width);
    double* row = weights.data() + i * table.width;
    double total = 0.0;
    for (int64_t j = 0; j < n; ++j) {
      row[j] = keys_kernel((static_cast<double>(j + first) - centre + 0.5) * (1.0 / stretch));
      total += row[j];
    }
    for (int64_t j = 0; j < n && total != 0.0; ++j) {
      row[j] /= total;
      largest = std::max(largest, row[j]);
    }
    table.first.push_back(first);
    table.n_taps.push_back(n);
  }
  while (table.fraction_bits < kMaxFractionBits &&
         static_cast<int>(0.5 + largest * (1 << (table.fraction_bits + 1))) < (1 << 15)) {
    ++table.fraction_bits;
  }
  const double unit = 1 << table.fraction_bits;
  for (const double weight : weights) {
    table.weights.push_back(static_cast<int32_t>(weight * unit + (weight < 0.0 ? -0.5 : 0.5)));
  }
  return table;
}

uint8_t to_code(int32_t sum, int fraction_bits) {
  return static_cast<uint8_t>(std::clamp(sum >> fraction_bits, 0, 255));
}

// Sums stay far within 32 bits: the weights of one output add up to about 2^fraction_bits, and
// their magnitudes to less than twice that.
void resample_row(const ResampleTable& table, const uint8_t* in, uint8_t* out) {
  for (size_t x = 0; x < table.first.size(); ++x) {
    const int32_t* weight = table.weights.data() + static_cast<int64_t>(x) * table.width;
    const uint8_t* pixel = in + 3 * table.first[x];
    int32_t sums[3];
    std::fill_n(sums, 3, 1 << (table.fraction_bits - 1));
    for (int64_t j = 0; j < table.n_taps[x]; ++j, pixel += 3) {
      for (int c = 0; c < 3; ++c) sums[c] += pixel[c] * weight[j];
    }
    for (int c = 0; c < 3; ++c) *out++ = to_code(sums[c], table.fraction_bits);
  }
}

Image resample_rows(const Image& image, int64_t width) {
  const ResampleTable table = make_table(image.width, width);
  Image result{width, image.height,
               std::vector<uint8_t>(static_cast<size_t>(width * image.height) * 3)};
  for (int64_t y = 0; y < image.height; ++y) {
    resample_row(table, image.rgb.data() + 3 * y * image.width, result.rgb.data() + 3 * y * width);
  }
  return result;
}

Image resample_columns(const Image& image, int64_t height) {
  const ResampleTable table = make_table(image.height, height);
  const int64_t row_values = 3 * image.width;
  Image result{image.width, height, std::vector<uint8_t>(static_cast<size_t>(row_values * height))};
  std::vector<int32_t> sums(static_cast<size_t>(row_values));
  for (size_t y = 0; y < table.first.size(); ++y) {
    std::fill(sums.begin(), sums.end(), 1 << (table.fraction_bits - 1));
    for (int64_t j = 0; j < table.n_taps[y]; ++j) {
      const int32_t weight =
          table.weights[y * static_cast<size_t>(table.width) + static_cast<size_t>(j)];
      const uint8_t* in = image.rgb.data() + (table.first[y] + j) * row_values;
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += in[i] * weight;
    }
    uint8_t* out = result.rgb.data() + static_cast<int64_t>(y) * row_values;
    for (size_t i = 0; i < sums.size(); ++i) out[i] = to_code(sums[i], table.fraction_bits);
  }
  return result;
}

}  // namespace

ImageSize model_image_size(ImageSize stored, int64_t factor, int64_t min_pixels, int64_t max_pixels,
                           const std::string& label) {
  LOCKSTEP_CHECK(stored.width > 0 && stored.height > 0 && factor > 0);
  const auto width = static_cast<double>(stored.width);
  const auto height = static_cast<double>(stored.height);
  if (std::max(width, height) / std::min(width, height) > kMaxAspect) {
    fail("{}: {} x {}: one side is more than {} times the other", label, stored.width,
         stored.height, kMaxAspect);
  }
  const auto divisor = static_cast<double>(factor);
  ImageSize size{nearest_multiple(stored.width, factor), nearest_multiple(stored.height, factor)};
  const int64_t area = size.width * size.height;
  if (area > max_pixels) {
    const double shrink = std::sqrt(height * width / static_cast<double>(max_pixels));
    const auto shrunk = [&](double side) {
      return std::max(factor, static_cast<int64_t>(std::floor(side / shrink / divisor)) * factor);
    };
    return {shrunk(width), shrunk(height)};
  }
  if (area < min_pixels) {
    const double grow = std::sqrt(static_cast<double>(min_pixels) / (height * width));
    const auto grown = [&](double side) {
      return static_cast<int64_t>(std::ceil(side * grow / divisor)) * factor;
    };
    return {grown(width), grown(height)};
  }
  return size;
}

Image resize_bicubic(const Image& image, ImageSize size) {
  LOCKSTEP_CHECK(image.width > 0 && image.height > 0 && size.width > 0 && size.height > 0);
  if (image.width == size.width && image.height == size.height) return image;
  if (image.width == size.width) return resample_columns(image, size.height);
  if (image.height == size.height) return resample_rows(image, size.width);
  return resample_columns(resample_rows(image, size.width), size.height);
}

}  // namespace lockstep
