// Windows that peers may touch, and the ways to touch them, on the real machine.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "hardware-probe/real/cuda.h"
#include "hardware-probe/real/real_memory.h"

namespace lockstep::probe {

class RealPeers {
 public:
  explicit RealPeers(Cuda& cuda) : cuda_(cuda) {}

  void open(int from, int to, int64_t bytes);
  void close();
  void fill(int gpu, bool source, const Pattern& pattern);
  Mismatches verify(int gpu, const Pattern& pattern);
  void move(PeerPath path, int from, int to);
  double move_ms(PeerTiming timing, int from, int to, int64_t bytes);
  double ping_pong_us(int from, int to, const std::string& what);
  Rung atomics(int from, int to);
  Rung all_reduce(int n_gpus, bool through_peers, uint64_t seed);
  std::pair<Rung, std::string> nccl_all_reduce(const std::string& library, int n_gpus,
                                               uint64_t seed);

 private:
  struct Window {
    DevicePointer source = 0, window = 0;
    int64_t bytes = 0;
  };
  void enable(int from, int to);
  Window& window(int gpu);
  void add_window(int gpu, int64_t bytes);
  double bounce_ms(int from, int to, int64_t bytes);
  Rung verify_sums(int n_gpus, uint64_t seed);

  Cuda& cuda_;
  std::map<int, Window> windows_;
};

}  // namespace lockstep::probe
