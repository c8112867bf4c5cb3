// Device memory and pinned transfers on the real machine.
#pragma once

#include <map>
#include <vector>

#include "hardware-probe/real/cuda.h"

namespace lockstep::probe {

class RealMemory {
 public:
  explicit RealMemory(Cuda& cuda) : cuda_(cuda) {}

  int64_t hold(int gpu, double share_of_total);
  void release(int gpu);
  void fill(int gpu, const Pattern& pattern);
  Mismatches verify(int gpu, const Pattern& pattern);
  double stream_ms(int gpu, Stream stream, int64_t offset, int64_t bytes);
  double transfer_ms(int gpu, Transfer direction, int64_t bytes);
  int64_t transfer_wrong_words(int gpu, const Pattern& pattern, int64_t bytes);

 private:
  struct Block {
    DevicePointer pointer;
    int64_t bytes;
  };
  struct Transfers {
    DevicePointer device_up = 0, device_down = 0;
    void* host_up = nullptr;
    void* host_down = nullptr;
    void* second_stream = nullptr;
    int64_t bytes = 0;
  };
  DevicePointer address(int gpu, int64_t offset, int64_t bytes) const;
  Transfers& transfers(int gpu, int64_t bytes);

  Cuda& cuda_;
  std::map<int, std::vector<Block>> held_;
  std::map<int, Transfers> transfers_;
};

// Shared with the peers' windows: fills and compares one range whose first word has index `first`.
void fill_range(Cuda& cuda, int gpu, DevicePointer pointer, int64_t bytes, uint64_t first,
                const Pattern& pattern);
Mismatches verify_range(Cuda& cuda, int gpu, DevicePointer pointer, int64_t bytes, uint64_t first,
                        const Pattern& pattern);
unsigned wide_grid(Cuda& cuda, int gpu);  // blocks of 512 threads that fill every SM

}  // namespace lockstep::probe
