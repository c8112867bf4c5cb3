#include "engine/rank/cuda/host_rows.h"

#include "engine/base/float_formats.h"

namespace lockstep {

const float* HostRows::read(const uint16_t* device, int64_t n) {
  codes_.resize(static_cast<size_t>(n));
  values_.resize(static_cast<size_t>(n));
  stream_.copy_out(codes_.data(), device, n * 2);
  stream_.synchronize();
  for (size_t i = 0; i < codes_.size(); ++i) values_[i] = bf16_to_float(codes_[i]);
  return values_.data();
}

void HostRows::write(const float* values, int64_t n, uint16_t* device) {
  codes_.resize(static_cast<size_t>(n));
  for (size_t i = 0; i < codes_.size(); ++i) codes_[i] = float_to_bf16(values[i]);
  stream_.copy_in(device, codes_.data(), n * 2);
  stream_.synchronize();
}

}  // namespace lockstep
