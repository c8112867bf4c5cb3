#include "hardware-probe/real/cuda.h"

#include <cstdlib>

#include "hardware-probe/real/embedded_kernels.h"
#include "hardware-probe/real/nvml.h"

namespace lockstep::probe {
namespace {

// CUDA_ERROR_ECC_UNCORRECTABLE. Other errors may be the program's own: whether the card still
// answers is NVML's to say.
constexpr int kUncorrectable = 214;

}  // namespace

Cuda::Cuda() : library_("libcuda.so.1") {
  if (!library_.present()) {
    error_ = library_.error();
    return;
  }
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  if (const int status = library_.call("cuInit", 0u); status != 0)
    error_ = fmt::format("cuInit gave error {}", status);
}

void Cuda::check(const char* function, int status) {
  if (status == 0) return;
  const char* name = "?";
  library_.call("cuGetErrorName", status, &name);
  const std::string what =
      fmt::format("{}: {} ({})", function, name == nullptr ? "?" : name, status);
  if (status == kUncorrectable) throw DeviceLost(what);
  fail("{}", what);
}

int Cuda::n_devices() {
  int n = 0;
  return present() && library_.call("cuDeviceGetCount", &n) == 0 ? n : 0;
}

int Cuda::driver_version() {
  int version = 0;
  library_.call("cuDriverGetVersion", &version);
  return version;
}

int Cuda::attribute(int gpu, int which) {
  int value = 0, handle = 0;
  call("cuDeviceGet", &handle, gpu);
  call("cuDeviceGetAttribute", &value, which, handle);
  return value;
}

std::string Cuda::bus_id(int gpu) {
  char text[32] = "";
  int handle = 0;
  call("cuDeviceGet", &handle, gpu);
  call("cuDeviceGetPCIBusId", &text[0], int{sizeof(text)}, handle);
  return normal_bus_id(text);
}

std::string Cuda::name(int gpu) {
  char text[128] = "";
  int handle = 0;
  call("cuDeviceGet", &handle, gpu);
  call("cuDeviceGetName", &text[0], int{sizeof(text)}, handle);
  return text;
}

int64_t Cuda::total_bytes(int gpu) {
  size_t bytes = 0;
  int handle = 0;
  call("cuDeviceGet", &handle, gpu);
  call("cuDeviceTotalMem_v2", &bytes, handle);
  return static_cast<int64_t>(bytes);
}

Cuda::Device& Cuda::device(int gpu) {
  if (!present()) fail("no CUDA driver: {}", error_);
  if (embedded_kernels() == nullptr) {
    fail("this build has no GPU kernels: build with -DLOCKSTEP_PROBE_CUDA=ON");
  }
  Device& out = devices_[gpu];
  if (out.context != nullptr) {
    call("cuCtxSetCurrent", out.context);
    return out;
  }
  call("cuDeviceGet", &out.handle, gpu);
  call("cuDevicePrimaryCtxRetain", &out.context, out.handle);
  call("cuCtxSetCurrent", out.context);
  call("cuStreamCreate", &out.stream, 1u);
  call("cuEventCreate", &out.begin, 0u);
  call("cuEventCreate", &out.end, 0u);
  call("cuModuleLoadData", &out.module, embedded_kernels());
  return out;
}

void Cuda::use(int gpu) {
  device(gpu);
}

void* Cuda::stream(int gpu) {
  return device(gpu).stream;
}

DevicePointer Cuda::allocate(int gpu, int64_t bytes) {
  use(gpu);
  DevicePointer pointer = 0;
  call("cuMemAlloc_v2", &pointer, static_cast<size_t>(bytes));
  return pointer;
}

void Cuda::release(int gpu, DevicePointer pointer) {
  use(gpu);
  call("cuMemFree_v2", pointer);
}

int64_t Cuda::free_bytes(int gpu) {
  use(gpu);
  size_t available = 0, total = 0;
  call("cuMemGetInfo_v2", &available, &total);
  return static_cast<int64_t>(available);
}

void Cuda::synchronize(int gpu) {
  call("cuStreamSynchronize", device(gpu).stream);
}

void* Cuda::function(int gpu, const char* kernel) {
  Device& own = device(gpu);
  void*& known = own.functions[kernel];
  if (known == nullptr) call("cuModuleGetFunction", &known, own.module, kernel);
  return known;
}

void Cuda::launch(int gpu, const char* kernel, unsigned blocks, unsigned threads,
                  std::vector<void*> arguments, unsigned shared_bytes) {
  void* code = function(gpu, kernel);
  constexpr int kMaxDynamicShared = 8;
  if (shared_bytes > 0)
    call("cuFuncSetAttribute", code, kMaxDynamicShared, static_cast<int>(shared_bytes));
  void** no_extra = nullptr;
  call("cuLaunchKernel", code, blocks, 1u, 1u, threads, 1u, 1u, shared_bytes, device(gpu).stream,
       arguments.data(), no_extra);
}

double Cuda::timed_ms(int gpu, const std::function<void()>& work) {
  Device& own = device(gpu);
  call("cuEventRecord", own.begin, own.stream);
  work();
  device(gpu);
  call("cuEventRecord", own.end, own.stream);
  call("cuEventSynchronize", own.end);
  float ms = 0;
  call("cuEventElapsedTime", &ms, own.begin, own.end);
  return ms;
}

void Cuda::to_host(int gpu, void* to, DevicePointer from, size_t bytes) {
  call("cuMemcpyDtoHAsync_v2", to, from, bytes, device(gpu).stream);
  synchronize(gpu);
}

void Cuda::to_device(int gpu, DevicePointer to, const void* from, size_t bytes) {
  call("cuMemcpyHtoDAsync_v2", to, from, bytes, device(gpu).stream);
  synchronize(gpu);
}

}  // namespace lockstep::probe
