// What a rank asks of its peers for values that lie on its device: partial sums and logits. Every
// transport returns the bits of Communicator's calls.
//
// Calls enqueue on a stream and return. All calls of a rank go to one stream, in the same order on
// all ranks. A wait for a peer has a deadline, on the card too; what it ends with comes out of
// synchronize().
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

#include "engine/comm/communicator.h"
#include "engine/device/device.h"

namespace lockstep {

inline constexpr std::chrono::milliseconds kTransportDeadline = std::chrono::seconds(60);

class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;

  // The transport's name, as --transport has it.
  virtual std::string_view name() const = 0;
  // Whether the two calls below may become nodes of a CUDA graph, which any number of replays then
  // runs without the host.
  virtual bool capturable() const = 0;

  // Of each wait that is enqueued from here on; kTransportDeadline at start. Transports that wait
  // on the host have the mailbox's.
  virtual void set_deadline(std::chrono::milliseconds) {}

  // data[i] = round(p_0[i] + p_1[i]), added in the order of ranks. data [n]: bfloat16 with
  // Rounding::bf16, otherwise float32; starts at a multiple of 16 bytes. NaN stays some NaN.
  virtual void all_reduce(void* data, int64_t n, Rounding exchange_type, Stream& stream) = 0;

  // out holds n_ranks blocks of n_bytes in the order of ranks; `in` is this rank's block. Both
  // start at multiples of 16 bytes and do not overlap; n_bytes is a multiple of 4.
  virtual void all_gather(const void* in, int64_t n_bytes, void* out, Stream& stream) = 0;

  // Waits for the stream. Throws Error with exit code 75 (peer lost) or 76 (deadline) that names
  // the operation; values behind it are undefined then.
  virtual void synchronize(Stream& stream) = 0;
};

// "mailbox": through the host, by `host`, which must outlive it. On any device; both calls wait for
// the stream.
std::unique_ptr<DeviceCommunicator> make_staged_communicator(Communicator& host);

// `stream` itself without a transport; otherwise one whose synchronize() is the transport's, which
// must outlive it.
std::unique_ptr<Stream> watched_stream(std::unique_ptr<Stream> stream,
                                       DeviceCommunicator* transport);

}  // namespace lockstep
