#include "hardware-probe/real/real_memory.h"

#include <algorithm>

#include "hardware-probe/kernels/workload.h"

namespace lockstep::probe {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kAlign = 2 * kMiB;
// Left free: the driver's own needs, and the small buffers of the tests themselves.
constexpr int64_t kReserve = 64 * kMiB;
constexpr uint32_t kErrorsKept = 16;
constexpr int kSmCount = 16;

struct DeviceError {
  uint64_t index, expected, actual, reread;
};

DevicePointer try_allocate(Cuda& cuda, int gpu, int64_t bytes) {
  cuda.use(gpu);
  DevicePointer pointer = 0;
  constexpr int kOutOfMemory = 2;
  const int status = cuda.status("cuMemAlloc_v2", &pointer, static_cast<size_t>(bytes));
  if (status != 0 && status != kOutOfMemory)
    fail("cuMemAlloc_v2 of {} MiB: error {}", bytes / kMiB, status);
  return status == 0 ? pointer : 0;
}

}  // namespace

unsigned wide_grid(Cuda& cuda, int gpu) {
  return static_cast<unsigned>(cuda.attribute(gpu, kSmCount)) * 4;
}

void fill_range(Cuda& cuda, int gpu, DevicePointer pointer, int64_t bytes, uint64_t first,
                const Pattern& pattern) {
  uint64_t n = static_cast<uint64_t>(bytes) / 8;
  int32_t kind = pattern.kind;
  uint64_t seed = pattern.seed;
  cuda.launch(gpu, "probe_fill", wide_grid(cuda, gpu), 512, {&pointer, &n, &first, &kind, &seed});
}

Mismatches verify_range(Cuda& cuda, int gpu, DevicePointer pointer, int64_t bytes, uint64_t first,
                        const Pattern& pattern) {
  uint64_t n = static_cast<uint64_t>(bytes) / 8;
  int32_t kind = pattern.kind;
  uint64_t seed = pattern.seed;
  uint32_t capacity = kErrorsKept;
  const DevicePointer results = cuda.allocate(gpu, 4096);
  DevicePointer count = results, errors = results + 256;
  const unsigned long long zero = 0;
  cuda.to_device(gpu, count, &zero, sizeof(zero));
  cuda.launch(gpu, "probe_verify", wide_grid(cuda, gpu), 512,
              {&pointer, &n, &first, &kind, &seed, &count, &errors, &capacity});
  unsigned long long wrong = 0;
  DeviceError found[kErrorsKept] = {};
  cuda.to_host(gpu, &wrong, count, sizeof(wrong));
  cuda.to_host(gpu, found, errors, sizeof(found));
  cuda.release(gpu, results);
  Mismatches out;
  out.count = static_cast<int64_t>(wrong);
  for (uint64_t i = 0; i < std::min<uint64_t>(wrong, kErrorsKept); ++i) {
    out.first.push_back({static_cast<int64_t>(found[i].index * 8), found[i].expected,
                         found[i].actual, found[i].reread, ""});
  }
  return out;
}

int64_t RealMemory::hold(int gpu, double share_of_total) {
  release(gpu);
  const auto wanted =
      static_cast<int64_t>(static_cast<double>(cuda_.total_bytes(gpu)) * share_of_total);
  std::vector<Block>& blocks = held_[gpu];
  int64_t held = 0;
  // Large blocks first, then smaller ones into what is left.
  for (int64_t step = 0, size = 0; held < wanted; ++step) {
    const int64_t room =
        std::min(wanted - held, cuda_.free_bytes(gpu) - kReserve) / kAlign * kAlign;
    size = step == 0 ? room : std::min(room, size);
    if (size < kAlign) break;
    if (const DevicePointer pointer = try_allocate(cuda_, gpu, size); pointer != 0) {
      blocks.push_back({pointer, size});
      held += size;
    } else {
      size = size * 3 / 4 / kAlign * kAlign;
    }
  }
  return held;
}

void RealMemory::release(int gpu) {
  for (const Block& block : held_[gpu]) cuda_.release(gpu, block.pointer);
  held_[gpu].clear();
}

void RealMemory::fill(int gpu, const Pattern& pattern) {
  uint64_t first = 0;
  for (const Block& block : held_[gpu]) {
    fill_range(cuda_, gpu, block.pointer, block.bytes, first, pattern);
    first += static_cast<uint64_t>(block.bytes) / 8;
  }
  cuda_.synchronize(gpu);
}

Mismatches RealMemory::verify(int gpu, const Pattern& pattern) {
  Mismatches all;
  uint64_t first = 0;
  for (const Block& block : held_[gpu]) {
    const Mismatches part = verify_range(cuda_, gpu, block.pointer, block.bytes, first, pattern);
    all.count += part.count;
    all.first.insert(all.first.end(), part.first.begin(), part.first.end());
    first += static_cast<uint64_t>(block.bytes) / 8;
  }
  return all;
}

// A range that crosses the end of a block is moved back into it.
DevicePointer RealMemory::address(int gpu, int64_t offset, int64_t bytes) const {
  int64_t begin = 0;
  for (const Block& block : held_.at(gpu)) {
    if (offset < begin + block.bytes) {
      const int64_t inside = std::min(offset - begin, block.bytes - bytes);
      if (inside < 0) break;
      return block.pointer + static_cast<DevicePointer>(inside / 16 * 16);
    }
    begin += block.bytes;
  }
  fail("device memory is too fragmented for a range of {} MiB", bytes / kMiB);
}

double RealMemory::stream_ms(int gpu, Stream stream, int64_t offset, int64_t bytes) {
  uint64_t n = static_cast<uint64_t>(bytes) / 16;
  const auto blocks = [n](int words_a_thread) {
    const auto piece = static_cast<uint64_t>(kStreamThreads * words_a_thread);
    return static_cast<unsigned>((n + piece - 1) / piece);
  };
  DevicePointer from = address(gpu, offset, bytes);
  if (stream == Stream::write) {
    uint32_t value = 0x5a5a5a5au;
    return cuda_.timed_ms(gpu, [&] {
      cuda_.launch(gpu, "probe_write", blocks(1), kStreamThreads, {&from, &n, &value});
    });
  }
  if (stream == Stream::read) {
    DevicePointer sink = from;
    return cuda_.timed_ms(gpu, [&] {
      cuda_.launch(gpu, "probe_read", blocks(kReadUnroll), kStreamThreads, {&from, &n, &sink});
    });
  }
  DevicePointer to = address(gpu, offset + bytes, bytes);
  return cuda_.timed_ms(gpu, [&] {
    cuda_.launch(gpu, "probe_copy", blocks(1), kStreamThreads, {&to, &from, &n});
  });
}

RealMemory::Transfers& RealMemory::transfers(int gpu, int64_t bytes) {
  Transfers& own = transfers_[gpu];
  if (own.bytes >= bytes) return own;
  cuda_.use(gpu);
  own.device_up = cuda_.allocate(gpu, bytes);
  own.device_down = cuda_.allocate(gpu, bytes);
  cuda_.call("cuMemAllocHost_v2", &own.host_up, static_cast<size_t>(bytes));
  cuda_.call("cuMemAllocHost_v2", &own.host_down, static_cast<size_t>(bytes));
  cuda_.call("cuStreamCreate", &own.second_stream, 1u);
  own.bytes = bytes;
  return own;
}

double RealMemory::transfer_ms(int gpu, Transfer direction, int64_t bytes) {
  Transfers& own = transfers(gpu, bytes);
  const auto n = static_cast<size_t>(bytes);
  void* stream = cuda_.stream(gpu);
  const auto up = [&] {
    cuda_.call("cuMemcpyHtoDAsync_v2", own.device_up, static_cast<const void*>(own.host_up), n,
               stream);
  };
  if (direction == Transfer::to_device) return cuda_.timed_ms(gpu, up);
  if (direction == Transfer::to_host) {
    return cuda_.timed_ms(gpu, [&] {
      cuda_.call("cuMemcpyDtoHAsync_v2", own.host_down, own.device_down, n, stream);
    });
  }
  return cuda_.timed_ms(gpu, [&] {
    cuda_.call("cuMemcpyDtoHAsync_v2", own.host_down, own.device_down, n, own.second_stream);
    up();
    // The end event lies on the first stream, so the second must have ended before it is recorded.
    cuda_.call("cuStreamSynchronize", own.second_stream);
  });
}

int64_t RealMemory::transfer_wrong_words(int gpu, const Pattern& pattern, int64_t bytes) {
  Transfers& own = transfers(gpu, bytes);
  const auto n = static_cast<uint64_t>(bytes) / 8;
  auto* sent = static_cast<uint64_t*>(own.host_up);
  auto* received = static_cast<uint64_t*>(own.host_down);
  for (uint64_t i = 0; i < n; ++i) sent[i] = pattern_word(pattern.kind, pattern.seed, i);
  cuda_.to_device(gpu, own.device_up, sent, n * 8);
  int64_t wrong = verify_range(cuda_, gpu, own.device_up, bytes, 0, pattern).count;
  // Down comes what the card itself wrote, so that an error on the way up cannot cancel out.
  fill_range(cuda_, gpu, own.device_down, bytes, 0, pattern);
  cuda_.to_host(gpu, received, own.device_down, n * 8);
  for (uint64_t i = 0; i < n; ++i) wrong += received[i] != sent[i] ? 1 : 0;
  return wrong;
}

}  // namespace lockstep::probe
