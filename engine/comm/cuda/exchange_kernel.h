// The kernel of both mailboxes on cards: one rank's side of an all-reduce or all-gather.
//
// A message travels in packets of 16 bytes {data, flag, data, flag}, which the sender writes into
// the reader's inbox: the flag is the number of the operation, and a half whose flag is right holds
// data that is right, because stores of 8 bytes are never torn. So nobody waits for anything but
// the data itself, without fences. Each block of the grid sends and receives a share of its own and
// counts its own operations; ranks run the same operations with the same grids, so counters of two
// twin blocks agree. An inbox has kExchangeSlots slots, taken in turn by the number of the
// operation: a rank writes a slot again only after it has received an operation that its peer began
// when it had long read the slot.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace lockstep::cuda {

inline constexpr int kExchangeSlots = 4;
inline constexpr int kExchangeBlocks = 128;   // at most, in one launch
inline constexpr int kExchangeThreads = 256;  // of a block
inline constexpr int kExchangePackets = 4;    // of a thread, at most
inline constexpr int kPacketBytes = 8;        // of data in a packet
// Of data in one launch.
inline constexpr int64_t kExchangeBytes =
    int64_t{kExchangeBlocks} * kExchangeThreads * kExchangePackets * kPacketBytes;
inline constexpr int64_t kInboxBytes = kExchangeSlots * kExchangeBytes * 2;

// The first line of an inbox, which the peer writes when it goes. Packets follow.
struct InboxHead {
  uint32_t left;  // 1 once the peer has gone
  uint32_t unused[63];
};

// A rank's own, on its card, zero at start.
struct ExchangeState {
  uint32_t failed;                    // 1 once a wait has ended without its data
  uint32_t n_begun[kExchangeBlocks];  // operations of each block
};

// What ended a wait, in memory of the host that the card can write. Zero at start.
struct ExchangeVerdict {
  uint32_t exit_code;  // 0, 75 or 76
  uint32_t operation;
};

enum class ExchangeKind : int { sum_bf16, sum_fp32, gather };

// Faults that a build with LOCKSTEP_KERNEL_MUTANTS can plant into what this rank does.
enum class ExchangeFault : int {
  none,
  bit_flipped,   // one bit of a packet is flipped on its way
  stale_buffer,  // a packet's data is what its slot held before
  flag_missing,  // one packet never comes
  truncated,     // sums are truncated to bfloat16
};

struct ExchangeArgs {
  ExchangeKind kind;
  int rank;
  void* data;        // sums: in place; gathers: what this rank sends
  void* out;         // gathers: this rank's and the peer's block, `stride` bytes apart
  int64_t stride;    // of blocks of `out`, bytes
  int64_t n_bytes;   // 2 to kExchangeBytes; a multiple of 2, for gathers and float32 of 4
  std::byte* inbox;  // this rank's
  std::byte* peer;   // the peer's inbox
  ExchangeState* state;
  ExchangeVerdict* verdict;
  uint64_t deadline_ns;  // of the waits of this launch
  ExchangeFault fault;
};

void launch_exchange(const ExchangeArgs& args, cudaStream_t stream);

}  // namespace lockstep::cuda
