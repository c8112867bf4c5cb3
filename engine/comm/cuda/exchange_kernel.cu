#include "engine/comm/cuda/exchange_kernel.h"
#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/early_launch.cuh"
#include "engine/ops/common/cuda/rows.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kPollsBetweenLooks = 256;  // at the clock and at the peer's head

__device__ __forceinline__ bool planted(const ExchangeArgs& args, ExchangeFault fault) {
#ifdef LOCKSTEP_KERNEL_MUTANTS
  return args.fault == fault;
#else
  return false;
#endif
}

__device__ __forceinline__ uint64_t now_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Memory that another card or the host writes or reads meanwhile: never through L1.
__device__ __forceinline__ void send(uint4* to, const uint4& packet) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(packet.x),
               "r"(packet.y), "r"(packet.z), "r"(packet.w)
               : "memory");
}

__device__ __forceinline__ uint4 peek(const uint4* from) {
  uint4 packet;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(packet.x), "=r"(packet.y), "=r"(packet.z), "=r"(packet.w)
               : "l"(from)
               : "memory");
  return packet;
}

__device__ __forceinline__ uint32_t peek_word(const uint32_t* from) {
  return *static_cast<const volatile uint32_t*>(from);
}

// The 8 bytes of packet `i`; bytes behind the message are zero.
__device__ __forceinline__ uint2 load_packet(const void* data, int64_t i, int64_t n_bytes) {
  const auto* bytes = static_cast<const std::byte*>(data) + i * kPacketBytes;
  if ((i + 1) * kPacketBytes <= n_bytes) return *reinterpret_cast<const uint2*>(bytes);
  uint64_t value = 0;
  const auto* halves = reinterpret_cast<const uint16_t*>(bytes);
  for (int64_t k = 0; i * kPacketBytes + 2 * k < n_bytes; ++k) {
    value |= uint64_t{halves[k]} << (16 * k);
  }
  return {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)};
}

__device__ __forceinline__ void store_packet(void* data, int64_t i, int64_t n_bytes, uint2 value) {
  auto* bytes = static_cast<std::byte*>(data) + i * kPacketBytes;
  if ((i + 1) * kPacketBytes <= n_bytes) {
    *reinterpret_cast<uint2*>(bytes) = value;
    return;
  }
  auto* halves = reinterpret_cast<uint16_t*>(bytes);
  for (int64_t k = 0; i * kPacketBytes + 2 * k < n_bytes; ++k) {
    halves[k] = static_cast<uint16_t>((k < 2 ? value.x : value.y) >> (k % 2 * 16));
  }
}

// Blocks of a gather may start at any multiple of 4 bytes.
__device__ __forceinline__ void store_words(void* block, int64_t i, int64_t n_bytes, uint2 value) {
  auto* words = static_cast<uint32_t*>(block) + i * 2;
  words[0] = value.x;
  if ((i + 1) * kPacketBytes <= n_bytes) words[1] = value.y;
}

__device__ __forceinline__ uint32_t sum_bf16(const ExchangeArgs& args, uint32_t p0, uint32_t p1) {
  const float low = bf16_value(p0 & 0xffffu) + bf16_value(p1 & 0xffffu);
  const float high = __uint_as_float(p0 & 0xffff0000u) + __uint_as_float(p1 & 0xffff0000u);
  if (planted(args, ExchangeFault::truncated)) {
    return __float_as_uint(low) >> 16 | (__float_as_uint(high) & 0xffff0000u);
  }
  return bf16_pair(low, high);
}

__device__ __forceinline__ uint32_t sum_fp32(uint32_t p0, uint32_t p1) {
  return __float_as_uint(__uint_as_float(p0) + __uint_as_float(p1));
}

// In the order of ranks.
__device__ __forceinline__ uint2 sum(const ExchangeArgs& args, uint2 mine, uint2 theirs) {
  const uint2 p0 = args.rank == 0 ? mine : theirs;
  const uint2 p1 = args.rank == 0 ? theirs : mine;
  if (args.kind == ExchangeKind::sum_bf16) {
    return {sum_bf16(args, p0.x, p1.x), sum_bf16(args, p0.y, p1.y)};
  }
  return {sum_fp32(p0.x, p1.x), sum_fp32(p0.y, p1.y)};
}

__device__ __forceinline__ void finish(const ExchangeArgs& args, int64_t i, uint2 mine,
                                       uint2 theirs) {
  if (args.kind != ExchangeKind::gather) {
    store_packet(args.data, i, args.n_bytes, sum(args, mine, theirs));
    return;
  }
  auto* out = static_cast<std::byte*>(args.out);
  store_words(out + args.rank * args.stride, i, args.n_bytes, mine);
  store_words(out + (1 - args.rank) * args.stride, i, args.n_bytes, theirs);
}

__device__ __forceinline__ void send_faulty(const ExchangeArgs& args, uint4* to, uint4 packet,
                                            int64_t i) {
  if (i == 3 && planted(args, ExchangeFault::bit_flipped)) packet.z ^= 1u << 20;
  if (i == 3 && planted(args, ExchangeFault::stale_buffer)) {
    packet.x = peek(to).x;
    packet.z = peek(to).z;
  }
  if (i == 3 && planted(args, ExchangeFault::flag_missing)) return;
  send(to, packet);
}

// Writes down why this rank waits no more. Later launches do not wait at all.
__device__ __noinline__ void give_up(const ExchangeArgs& args, uint32_t operation, bool left) {
  auto* verdict = static_cast<volatile ExchangeVerdict*>(args.verdict);
  verdict->operation = operation;
  verdict->exit_code = left ? 75 : 76;
  static_cast<volatile ExchangeState*>(args.state)->failed = 1;
}

// The packet at `from` once it belongs to `operation`. False: it will not come. The clock, which is
// slow, is read first when a packet does not come soon: began_ns, 0 until then.
__device__ __forceinline__ bool receive(const ExchangeArgs& args, const uint4* from,
                                        uint32_t operation, uint64_t* began_ns, uint2* data) {
  for (int n_polls = 1;; ++n_polls) {
    uint4 packet = peek(from);
    if (n_polls % kPollsBetweenLooks == 0) {
      const bool left = peek_word(&reinterpret_cast<const InboxHead*>(args.inbox)->left) != 0;
      const uint64_t now = now_ns();
      if (*began_ns == 0) *began_ns = now;
      const bool ends = left || now - *began_ns > args.deadline_ns;
      // What a peer has sent before it left is there once its farewell is.
      if (ends) packet = peek(from);
      if (ends && (packet.y != operation || packet.w != operation)) {
        give_up(args, operation, left);
        return false;
      }
    }
    if (packet.y == operation && packet.w == operation) {
      *data = {packet.x, packet.z};
      return true;
    }
  }
}

// n_packets: of a thread.
template <int n_packets>
__global__ void __launch_bounds__(kExchangeThreads)
    exchange(const __grid_constant__ ExchangeArgs args) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const uint32_t operation = peek_word(&args.state->n_begun[blockIdx.x]) + 1;
  const bool failed = peek_word(&args.state->failed) != 0;
  constexpr int kShare = kExchangeThreads * n_packets;
  const int64_t n_all = (args.n_bytes + kPacketBytes - 1) / kPacketBytes;
  const int64_t first = int64_t{blockIdx.x} * kShare + threadIdx.x;
  uint2 mine[n_packets] = {};
#pragma unroll
  for (int k = 0; k < n_packets; ++k) {
    const int64_t i = first + k * kExchangeThreads;
    if (i < n_all) mine[k] = load_packet(args.data, i, args.n_bytes);
  }
  // A slot's packets of a block lie together, wherever the block's share begins.
  const int64_t place = (int64_t{operation % kExchangeSlots} * kExchangeBlocks + blockIdx.x) *
                            (kExchangeThreads * kExchangePackets) +
                        threadIdx.x;
  auto* to = reinterpret_cast<uint4*>(args.peer + sizeof(InboxHead)) + place;
  const auto* from = reinterpret_cast<const uint4*>(args.inbox + sizeof(InboxHead)) + place;
#pragma unroll
  for (int k = 0; k < n_packets; ++k) {
    const int64_t i = first + k * kExchangeThreads;
    const uint4 packet = {mine[k].x, operation, mine[k].y, operation};
    if (i < n_all && !failed) send_faulty(args, to + k * kExchangeThreads, packet, i);
  }
  uint64_t began_ns = 0;
  bool alive = !failed;
#pragma unroll
  for (int k = 0; k < n_packets; ++k) {
    const int64_t i = first + k * kExchangeThreads;
    uint2 theirs = {};
    if (i >= n_all || !alive) continue;
    alive = receive(args, from + k * kExchangeThreads, operation, &began_ns, &theirs);
    if (alive) finish(args, i, mine[k], theirs);
  }
  __syncthreads();
  if (threadIdx.x == 0) args.state->n_begun[blockIdx.x] = operation;
}

}  // namespace

void launch_exchange(const ExchangeArgs& args, cudaStream_t stream) {
  const int64_t n_packets = (args.n_bytes + kPacketBytes - 1) / kPacketBytes;
  const auto launch = [&](void (*kernel)(ExchangeArgs), int64_t n_of_thread) {
    const int64_t share = kExchangeThreads * n_of_thread;
    const dim3 blocks(static_cast<unsigned>((n_packets + share - 1) / share));
    launch_early(kernel, blocks, kExchangeThreads, 0, stream, args, "exchange between ranks");
  };
  constexpr int64_t kOneEach = int64_t{kExchangeBlocks} * kExchangeThreads;
  if (n_packets <= kOneEach) return launch(exchange<1>, 1);
  if (n_packets <= 2 * kOneEach) return launch(exchange<2>, 2);
  return launch(exchange<kExchangePackets>, kExchangePackets);
}

}  // namespace lockstep::cuda
