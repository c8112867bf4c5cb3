#include "engine/device/arena.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace lockstep {
namespace {

double mib(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

std::string largest_blocks(const ArenaPlan& plan) {
  std::vector<ArenaBlock> blocks = plan.blocks();
  std::stable_sort(blocks.begin(), blocks.end(),
                   [](const ArenaBlock& a, const ArenaBlock& b) { return a.bytes > b.bytes; });
  if (blocks.size() > 3) blocks.resize(3);
  std::string text;
  for (const ArenaBlock& block : blocks) {
    text += fmt::format("{}{} {:.0f} MiB", text.empty() ? "" : ", ", block.name, mib(block.bytes));
  }
  return text;
}

DeviceMemory reserve(Device& device, const ArenaPlan& plan) {
  const DeviceFacts& facts = device.facts();
  if (plan.total_bytes() > facts.memory_bytes) {
    fail_with(ExitCode::device_error,
              "{}: the plan needs {:.0f} MiB and {:.0f} MiB are free (largest: {}): lower "
              "--max-context or --slots",
              facts.name, mib(plan.total_bytes()), mib(facts.memory_bytes), largest_blocks(plan));
  }
  return {device, plan.total_bytes()};
}

}  // namespace

int ArenaPlan::add(std::string name, int64_t bytes) {
  LOCKSTEP_CHECK(bytes >= 0);
  for (const ArenaBlock& block : blocks_) LOCKSTEP_CHECK(block.name != name);
  blocks_.push_back({std::move(name), total_, bytes});
  total_ += arena_block_bytes(bytes);
  return static_cast<int>(blocks_.size()) - 1;
}

Arena::Arena(Device& device, ArenaPlan plan)
    : plan_(std::move(plan)), memory_(reserve(device, plan_)) {}

std::byte* Arena::at(int block) const {
  LOCKSTEP_CHECK(block >= 0 && block < static_cast<int>(plan_.blocks().size()));
  return memory_.data() + plan_.blocks()[static_cast<size_t>(block)].offset;
}

}  // namespace lockstep
