// One reservation that holds every block a rank will use, planned before anything is allocated.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/device/device.h"

namespace lockstep {

inline constexpr int64_t kArenaAlignment = 256;  // bytes; every block starts at a multiple

// What a block of `bytes` takes of an arena.
constexpr int64_t arena_block_bytes(int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

struct ArenaBlock {
  std::string name;
  int64_t offset = 0;
  int64_t bytes = 0;
};

class ArenaPlan {
 public:
  // Returns the index of the block. Names are unique; bytes may be 0.
  int add(std::string name, int64_t bytes);

  int64_t total_bytes() const { return total_; }
  const std::vector<ArenaBlock>& blocks() const { return blocks_; }

 private:
  std::vector<ArenaBlock> blocks_;
  int64_t total_ = 0;
};

class Arena {
 public:
  // Throws Error that names the largest blocks when the device has less free memory than the plan.
  Arena(Device& device, ArenaPlan plan);

  std::byte* at(int block) const;
  const ArenaPlan& plan() const { return plan_; }

 private:
  ArenaPlan plan_;
  DeviceMemory memory_;
};

}  // namespace lockstep
