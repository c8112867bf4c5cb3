// What a rank asks of its peers. Every transport returns the same bits; every wait has a deadline
// and throws Error with exit code 75 (peer lost) or 76 (deadline) that names the operation.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/ops/common/rounding.h"

namespace lockstep {

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int n_ranks() const = 0;

  // data[i] = round(p_0[i] + p_1[i]), partial sums added in the order of ranks, already rounded to
  // the exchange type (bf16 or float32) by the caller. data [n] float32.
  virtual void all_reduce(float* data, int64_t n, Rounding exchange_type) = 0;

  // out holds n_ranks blocks of n values in the order of ranks; `in` is this rank's block.
  virtual void all_gather(const float* in, int64_t n, float* out) = 0;

  // The same for a small record of bytes. out.size() == n_ranks * in.size().
  virtual void all_gather_bytes(std::span<const std::byte> in, std::span<std::byte> out) = 0;

  // For a rank that has nothing to do, between operations: sleeps until wake() is called, a peer
  // has begun an operation that this rank has not, or `limit` has passed. A wake() since the last
  // call counts, so that none is lost. No deadline: idle may last for hours.
  virtual void wait_for_work(std::chrono::milliseconds limit) = 0;
  // Whether a peer has begun an operation that this rank has not.
  virtual bool peer_has_begun() = 0;
  // Ends this rank's wait_for_work. The only call that other threads may make.
  virtual void wake() = 0;
};

// One rank alone: nothing to exchange.
std::unique_ptr<Communicator> make_single_rank_communicator();

}  // namespace lockstep
