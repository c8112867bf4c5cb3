#include "engine/ops/common/cpu_target.h"

#include <hwy/targets.h>

#include "engine/base/error.h"

namespace lockstep {
namespace {

struct CpuTarget {
  const char* name;
  int64_t highway_targets;
};

// Best first. Each of them has fused multiply-add.
constexpr CpuTarget kCpuTargets[] = {{"avx512", HWY_AVX3_DL | HWY_AVX3}, {"avx2", HWY_AVX2}};

// What the processor has. Highway reports its own selection after one was made, hence once and
// first.
int64_t processor_targets() {
  static const int64_t targets = hwy::SupportedTargets();
  return targets;
}

void use_targets(int64_t highway_targets) {
  hwy::SetSupportedTargetsForTest(highway_targets);
  hwy::GetChosenTarget().Update(highway_targets);
}

// What this process computes on: nothing is chosen until select_cpu_target or the first kernel.
int64_t& selected_targets() {
  static int64_t targets = 0;
  return targets;
}

}  // namespace

std::vector<std::string> available_cpu_targets() {
  const int64_t supported = processor_targets();
  std::vector<std::string> names;
  for (const CpuTarget& target : kCpuTargets) {
    if ((supported & target.highway_targets) != 0) names.emplace_back(target.name);
  }
  return names;
}

void select_cpu_target(const std::string& name) {
  const std::vector<std::string> available = available_cpu_targets();
  if (available.empty()) {
    fail(
        "this processor has no AVX2 with fused multiply-add, which the CPU kernels need; use a "
        "newer one");
  }
  for (const CpuTarget& target : kCpuTargets) {
    if (name != target.name && name != "auto") continue;
    const int64_t usable = processor_targets() & target.highway_targets;
    if (usable == 0 && name == "auto") continue;
    if (usable == 0) {
      fail("CPU target {}: this processor lacks it; use {} or auto", name, available.front());
    }
    selected_targets() = usable;
    use_targets(usable);
    return;
  }
  fail("CPU target {}: unknown; use auto, avx2 or avx512", name);
}

std::string current_cpu_target() {
  const int64_t targets = selected_targets() != 0 ? selected_targets() : processor_targets();
  for (const CpuTarget& target : kCpuTargets) {
    if ((targets & target.highway_targets) != 0) return target.name;
  }
  return "none";
}

}  // namespace lockstep
