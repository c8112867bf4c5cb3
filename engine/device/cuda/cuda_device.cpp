#include "engine/device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/device/cuda/cuda_check.h"

namespace lockstep {

void cuda_check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  fail_with(ExitCode::device_error, "{}: {} ({})", what, cudaGetErrorString(code),
            cudaGetErrorName(code));
}

void cuda_check_launch(const char* kernel) {
  cuda_check(cudaGetLastError(), kernel);
}

namespace {

class CudaStream : public Stream {
 public:
  explicit CudaStream(int device) : device_(device) {
    cuda_check(cudaSetDevice(device), "cudaSetDevice");
    cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~CudaStream() override { cudaStreamDestroy(stream_); }

  void copy_in(void* to, const void* from, int64_t bytes) override {
    copy(to, from, bytes, cudaMemcpyHostToDevice);
  }
  void copy_out(void* to, const void* from, int64_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }
  void copy_within(void* to, const void* from, int64_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  void fill(void* device, uint8_t byte, int64_t bytes) override {
    cuda_check(cudaMemsetAsync(device, byte, static_cast<size_t>(bytes), stream_),
               "cudaMemsetAsync");
  }
  void synchronize() override {
    cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  void* native() const override { return stream_; }

 private:
  void copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
    cuda_check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream_),
               "cudaMemcpyAsync");
  }

  int device_;
  cudaStream_t stream_ = nullptr;
};

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    const bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    text += fmt::format("{}{:02x}", dash ? "-" : "", static_cast<uint8_t>(uuid.bytes[i]));
  }
  return text;
}

constexpr int64_t kSm70BlockSharedBytes = 96 * 1024;

class CudaDevice : public Device {
 public:
  CudaDevice(int index, bool as_sm70) : index_(index) {
    cuda_check(cudaSetDevice(index), "cudaSetDevice");
    cudaDeviceProp properties;
    cuda_check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    cuda_check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    facts_.kind = DeviceKind::cuda;
    facts_.name = fmt::format("cuda:{} {}", index, properties.name);
    facts_.arch = 10 * properties.major + properties.minor;
    facts_.n_multiprocessors = properties.multiProcessorCount;
    facts_.memory_bytes = static_cast<int64_t>(free_bytes);
    facts_.l2_bytes = properties.l2CacheSize;
    facts_.block_shared_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
    facts_.uuid = uuid_text(properties.uuid);
    int version = 0;
    cuda_check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
    facts_.driver = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
    if (facts_.arch < 70) {
      fail_with(ExitCode::device_error, "{} is sm_{}: kernels start at sm_70", facts_.name,
                facts_.arch);
    }
    if (as_sm70) {
      facts_.name += " as sm_70";
      facts_.arch = 70;
      facts_.block_shared_bytes = std::min(facts_.block_shared_bytes, kSm70BlockSharedBytes);
    }
  }

  const DeviceFacts& facts() const override { return facts_; }
  std::unique_ptr<Stream> new_stream() override { return std::make_unique<CudaStream>(index_); }
  void make_current() override { cuda_check(cudaSetDevice(index_), "cudaSetDevice"); }

 private:
  std::byte* allocate(int64_t bytes) override {
    cuda_check(cudaSetDevice(index_), "cudaSetDevice");
    void* data = nullptr;
    cuda_check(cudaMalloc(&data, static_cast<size_t>(bytes)), "cudaMalloc");
    return static_cast<std::byte*>(data);
  }
  void release(std::byte* data) noexcept override { cudaFree(data); }

  int index_;
  DeviceFacts facts_;
};

}  // namespace

int count_cuda_devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::vector<Card> list_cuda_cards() {
  std::vector<Card> cards;
  for (int index = 0; index < count_cuda_devices(); ++index) {
    cudaDeviceProp properties;
    cuda_check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
    std::string uuid = "GPU-";
    for (int i = 0; i < 16; ++i) {
      if (i == 4 || i == 6 || i == 8 || i == 10) uuid += '-';
      uuid += fmt::format("{:02x}", static_cast<unsigned char>(properties.uuid.bytes[i]));
    }
    cards.push_back({index, uuid,
                     fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID,
                                 properties.pciBusID, properties.pciDeviceID)});
  }
  return cards;
}

std::unique_ptr<Device> open_cuda_device(int index, bool as_sm70) {
  const int count = count_cuda_devices();
  if (index >= count) {
    fail_with(ExitCode::device_error, "device cuda:{}: the driver shows {} cards; see nvidia-smi",
              index, count);
  }
  return std::make_unique<CudaDevice>(index, as_sm70);
}

}  // namespace lockstep
