// Arrays on a card for exact cases (exact_case.h): copied there when they are made.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/float_formats.h"
#include "engine/device/device.h"

namespace lockstep {

template <typename T>
class CardArray {
 public:
  CardArray(const std::vector<T>& values, Device& device, Stream& stream)
      : memory_(device, static_cast<int64_t>(values.size() * sizeof(T))),
        stream_(stream),
        n_(values.size()) {
    stream.copy_in(memory_.data(), values.data(), memory_.size());
    stream.synchronize();
  }
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  std::vector<T> values() const {
    std::vector<T> out(n_);
    stream_.copy_out(out.data(), memory_.data(), memory_.size());
    stream_.synchronize();
    return out;
  }

 private:
  DeviceMemory memory_;
  Stream& stream_;
  size_t n_;
};

inline std::vector<uint16_t> bf16_of_floats(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(float_to_bf16(value));
  return bits;
}

inline std::vector<float> floats_of_bf16(const std::vector<uint16_t>& bits) {
  std::vector<float> values;
  for (const uint16_t b : bits) values.push_back(bf16_to_float(b));
  return values;
}

}  // namespace lockstep
