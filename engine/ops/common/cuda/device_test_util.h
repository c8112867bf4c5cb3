// What op tests on a card share: a card or a skip, arrays between walls, both kernel families.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "engine/device/device.h"
#include "engine/ops/linear/cuda/linear_plan_cuda.h"

namespace lockstep::op_test {

// One card and one stream for all tests of a program; null on a machine without a card.
struct Card {
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;

  static Card& instance() {
    static Card card;
    return card;
  }
  bool present() const { return device != nullptr; }
  // The families whose kernels this card can run: its own, and sm70 through its PTX.
  std::vector<KernelFamily> families() const {
    if (device->facts().arch < 80) return {KernelFamily::sm70};
    return {KernelFamily::sm70, KernelFamily::sm80};
  }

 private:
  Card() {
    if (n_cuda_devices() == 0) return;
    device = open_device("cuda");
    stream = device->new_stream();
  }
};

// Bytes on the card between two walls of a pattern; poisoned with the same pattern, a NaN in every
// float format.
class GuardedBytes {
 public:
  static constexpr int64_t kWall = 4096;
  static constexpr uint8_t kPattern = 0xff;

  explicit GuardedBytes(int64_t n_bytes)
      : n_bytes_(n_bytes), memory_(*Card::instance().device, n_bytes + 2 * kWall) {
    Card::instance().stream->fill(memory_.data(), kPattern, n_bytes + 2 * kWall);
  }
  template <typename T>
  explicit GuardedBytes(const std::vector<T>& values)
      : GuardedBytes(static_cast<int64_t>(values.size() * sizeof(T))) {
    Card::instance().stream->copy_in(data(), values.data(), n_bytes_);
    Card::instance().stream->synchronize();
  }

  std::byte* data() const { return memory_.data() + kWall; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data());
  }
  template <typename T>
  std::vector<T> values() const {
    std::vector<T> out(static_cast<size_t>(n_bytes_) / sizeof(T));
    Card::instance().stream->copy_out(out.data(), data(), n_bytes_);
    Card::instance().stream->synchronize();
    return out;
  }
  bool walls_intact() const {
    std::vector<uint8_t> all(static_cast<size_t>(memory_.size()));
    Card::instance().stream->copy_out(all.data(), memory_.data(), memory_.size());
    Card::instance().stream->synchronize();
    for (int64_t i = 0; i < kWall; ++i) {
      if (all[static_cast<size_t>(i)] != kPattern) return false;
      if (all[all.size() - 1 - static_cast<size_t>(i)] != kPattern) return false;
    }
    return true;
  }

 private:
  int64_t n_bytes_;
  DeviceMemory memory_;
};

}  // namespace lockstep::op_test

#define LOCKSTEP_NEEDS_CARD() \
  if (!::lockstep::op_test::Card::instance().present()) GTEST_SKIP() << "no CUDA device here"
