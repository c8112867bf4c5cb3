// Float scratch that starts on a cache line and only ever grows: vector loads from it never
// straddle two lines, and a hot path that keeps one per thread stops allocating after its first
// call.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "engine/base/error.h"

namespace lockstep {

class AlignedFloats {
 public:
  // At least n floats; what they held before is lost when the buffer has to grow.
  float* reserve(int64_t n) {
    if (n > size_) {
      const size_t n_bytes = (static_cast<size_t>(n) * sizeof(float) + 63) / 64 * 64;
      data_.reset(static_cast<float*>(std::aligned_alloc(64, n_bytes)));
      LOCKSTEP_CHECK(data_ != nullptr);
      size_ = n;
    }
    return data_.get();
  }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, Free> data_;
  int64_t size_ = 0;
};

}  // namespace lockstep
