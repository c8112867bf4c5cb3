// The CUDA driver API, opened at run time: contexts, memory, streams and the embedded kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hardware-probe/backend/backend.h"
#include "hardware-probe/real/dynamic_library.h"

namespace lockstep::probe {

using DevicePointer = unsigned long long;

class Cuda {
 public:
  Cuda();

  bool present() const { return error_.empty(); }
  const std::string& error() const { return error_; }
  int n_devices();
  int driver_version();
  int attribute(int gpu, int which);
  std::string bus_id(int gpu);
  std::string name(int gpu);
  int64_t total_bytes(int gpu);

  // Throws DeviceLost for an uncorrectable memory error, Error for the rest.
  template <typename... Args>
  void call(const char* function, Args... arguments) {
    check(function, library_.call(function, arguments...));
  }
  template <typename... Args>
  int status(const char* function, Args... arguments) {
    return library_.call(function, arguments...);
  }

  void use(int gpu);  // makes the card's primary context current
  void* stream(int gpu);
  DevicePointer allocate(int gpu, int64_t bytes);
  void release(int gpu, DevicePointer pointer);
  int64_t free_bytes(int gpu);
  void synchronize(int gpu);

  void launch(int gpu, const char* kernel, unsigned blocks, unsigned threads,
              std::vector<void*> arguments, unsigned shared_bytes = 0);
  // Milliseconds by events around what `work` enqueues on the card's stream.
  double timed_ms(int gpu, const std::function<void()>& work);
  void to_host(int gpu, void* to, DevicePointer from, size_t bytes);
  void to_device(int gpu, DevicePointer to, const void* from, size_t bytes);

 private:
  struct Device {
    int handle = 0;
    void* context = nullptr;
    void* stream = nullptr;
    void* module = nullptr;
    void* begin = nullptr;
    void* end = nullptr;
    std::map<std::string, void*> functions;
  };
  void check(const char* function, int status);
  Device& device(int gpu);
  void* function(int gpu, const char* kernel);

  DynamicLibrary library_;
  std::string error_;
  std::map<int, Device> devices_;
};

}  // namespace lockstep::probe
