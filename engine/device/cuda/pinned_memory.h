// Host memory that a card copies from and to by itself, without the caller waiting.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

class PinnedMemory {
 public:
  explicit PinnedMemory(int64_t n_bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  int64_t size_;
};

}  // namespace lockstep
