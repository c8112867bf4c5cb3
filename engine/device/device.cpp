#include "engine/device/device.h"

#include <charconv>
#include <utility>

#include "engine/base/error.h"
#include "engine/device/cards.h"
#include "engine/device/cpu_device.h"
#ifdef LOCKSTEP_CUDA
#include "engine/device/cuda/cuda_device.h"
#endif

namespace lockstep {

DeviceMemory::DeviceMemory(Device& device, int64_t bytes) : device_(&device), bytes_(bytes) {
  LOCKSTEP_CHECK(bytes >= 0);
  if (bytes > 0) data_ = device.allocate(bytes);
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) device_->release(data_);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept {
  *this = std::move(other);
}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

namespace {

constexpr std::string_view kAsSm70 = "@sm70";

// The N of "cuda" (0) and "cuda:N"; -1 for anything else.
int cuda_index(std::string_view name) {
  if (name.ends_with(kAsSm70)) name.remove_suffix(kAsSm70.size());
  constexpr std::string_view kPrefix = "cuda";
  if (name == kPrefix) return 0;
  if (!name.starts_with("cuda:")) return -1;
  const std::string_view digits = name.substr(kPrefix.size() + 1);
  int index = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  return error == std::errc() && end == digits.data() + digits.size() ? index : -1;
}

}  // namespace

std::unique_ptr<Device> open_device(std::string_view name) {
  if (name == "cpu") return open_cpu_device();
  const int index = cuda_index(name);
  if (index < 0) {
    fail_with(ExitCode::usage, "unknown device '{}': say cpu, cuda, cuda:N or cuda:N@sm70", name);
  }
#ifdef LOCKSTEP_CUDA
  return open_cuda_device(index, name.ends_with(kAsSm70));
#else
  fail("device '{}': this build has no CUDA backend: configure with -DLOCKSTEP_CUDA=ON", name);
#endif
}

std::vector<Card> cuda_cards() {
#ifdef LOCKSTEP_CUDA
  return list_cuda_cards();
#else
  return {};
#endif
}

int n_cuda_devices() {
#ifdef LOCKSTEP_CUDA
  return count_cuda_devices();
#else
  return 0;
#endif
}

}  // namespace lockstep
