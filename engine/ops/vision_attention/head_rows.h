// K and V of one head as the kernel reads them.
#pragma once

#include <cstdint>

namespace lockstep {

struct HeadRows {
  const float* k;  // [n_tokens, width], rows filled up with zeros to a multiple of 16
  const float* v;  // [n_tokens, width], the same
  int64_t width;
};

}  // namespace lockstep
