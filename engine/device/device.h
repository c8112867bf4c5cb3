// Memory, streams and facts of the processor that runs the ops: one interface, a CPU and a CUDA
// implementation.
//
// All memory is reserved at start (see arena.h); nothing allocates in a round. Work on one stream
// runs in order. Every failing call throws Error with ExitCode::device_error that names the call
// and the device: an asynchronous failure surfaces at the latest in synchronize().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

enum class DeviceKind : uint8_t { cpu, cuda };

struct DeviceFacts {
  DeviceKind kind = DeviceKind::cpu;
  std::string name;
  int arch = 0;                    // CUDA: 10 * major + minor, 70 for sm_70; 0 on the CPU
  int n_multiprocessors = 0;       // CUDA; read at run time, because cards of one name differ
  int64_t memory_bytes = 0;        // free when the device was opened
  int64_t l2_bytes = 0;            // CUDA
  int64_t block_shared_bytes = 0;  // CUDA: most dynamic shared memory of one block
  std::string uuid;                // CUDA: "GPU-" and 36 characters, as nvidia-smi shows it
  std::string driver;              // CUDA: the newest version that the driver speaks, "13.0"
};

class Device;

// Bytes on a device, freed with the object. Aligned to at least 256 bytes; contents undefined.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Device& device, int64_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;

  std::byte* data() const { return data_; }
  int64_t size() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;

  // `from` must stay as it is until synchronize() has returned.
  virtual void copy_in(void* to_device, const void* from_host, int64_t bytes) = 0;
  virtual void copy_out(void* to_host, const void* from_device, int64_t bytes) = 0;
  virtual void copy_within(void* to_device, const void* from_device, int64_t bytes) = 0;
  virtual void fill(void* device, uint8_t byte, int64_t bytes) = 0;
  virtual void synchronize() = 0;

  // cudaStream_t for code that launches kernels; null on the CPU.
  virtual void* native() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceFacts& facts() const = 0;
  virtual std::unique_ptr<Stream> new_stream() = 0;
  // CUDA launches kernels on the current card of the calling thread: a thread that uses this one
  // says so first.
  virtual void make_current() = 0;

 private:
  friend class DeviceMemory;
  virtual std::byte* allocate(int64_t bytes) = 0;
  virtual void release(std::byte* data) noexcept = 0;
};

// "cpu", "cuda" (the first card) or "cuda:N". With "@sm70" behind it a newer card says that it is
// an sm_70 and gets the kernels of one. Throws Error when this build or this machine lacks it.
std::unique_ptr<Device> open_device(std::string_view name);

// How many cards open_device can open; 0 in a build without CUDA and on a machine without a driver.
int n_cuda_devices();

}  // namespace lockstep
