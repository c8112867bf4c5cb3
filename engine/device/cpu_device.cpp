#include "engine/device/cpu_device.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"

namespace lockstep {
namespace {

constexpr size_t kAlignment = 256;

class CpuStream : public Stream {
 public:
  void copy_in(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void copy_out(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void copy_within(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void fill(void* device, uint8_t byte, int64_t bytes) override {
    std::memset(device, byte, static_cast<size_t>(bytes));
  }
  void synchronize() override {}
  void* native() const override { return nullptr; }
};

class CpuDevice : public Device {
 public:
  CpuDevice() {
    facts_.name = "cpu";
    facts_.memory_bytes = int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  }
  const DeviceFacts& facts() const override { return facts_; }
  std::unique_ptr<Stream> new_stream() override { return std::make_unique<CpuStream>(); }
  void make_current() override {}

 private:
  std::byte* allocate(int64_t bytes) override {
    const size_t size = (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
    void* data = std::aligned_alloc(kAlignment, size);
    if (data == nullptr) fail_with(ExitCode::device_error, "cpu: cannot allocate {} bytes", bytes);
    return static_cast<std::byte*>(data);
  }
  void release(std::byte* data) noexcept override { std::free(data); }

  DeviceFacts facts_;
};

}  // namespace

std::unique_ptr<Device> open_cpu_device() {
  return std::make_unique<CpuDevice>();
}

}  // namespace lockstep
