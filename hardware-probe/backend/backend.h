// The machine as the probe asks it: driver answers, memory contents, kernel times. The collector
// builds every measurement from these calls, so the simulated machine and the real one go through
// the same code above this line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "hardware-probe/observe/observations.h"

namespace lockstep::probe {

// The card does not answer any more (NVML_ERROR_GPU_IS_LOST, CUDA errors that poison the context).
class DeviceLost : public Error {
 public:
  using Error::Error;
};

// The call did not come back in time.
class DeadlinePassed : public Error {
 public:
  using Error::Error;
};

struct Pattern {
  int32_t kind = 0;  // PatternKind
  uint64_t seed = 0;
};

struct Mismatches {
  int64_t count = 0;
  std::vector<MemoryError> first;
};

struct SmRun {
  int sm = 0;
  uint64_t hash = 0;
  double ms = 0;
};

enum class Stream { read, write, copy };
enum class Transfer { to_device, to_host, both };
enum class Rate { fp32, fp64, matrix, dp4a };  // dp4a: four products of 8-bit integers at once
enum class Load { none, matrix, memory };
enum class PeerPath { copy_engine, store, load };
enum class PeerTiming { copy_engine, store, both_ways, through_host };

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;
  virtual double now_s() = 0;
  virtual void sleep_s(double seconds) = 0;

  // Driver answers. What the driver does not tell stays empty.
  virtual HostFacts host() = 0;  // with the kernel log of now
  virtual Visibility visible() = 0;
  virtual StackFacts stack() = 0;
  virtual int n_gpus() = 0;
  virtual GpuIdentity identity(int gpu) = 0;
  virtual GpuConfig config(int gpu) = 0;
  virtual GpuHistory history(int gpu) = 0;
  virtual Sample sample(int gpu) = 0;
  virtual PcieLink pcie_link(int gpu) = 0;
  virtual Maybe<int64_t> pcie_replays(int gpu) = 0;
  virtual Maybe<AerCounts> aer(int gpu) = 0;
  // Cumulative seconds slowed by {heat, power}.
  virtual std::pair<Maybe<double>, Maybe<double>> violation_s(int gpu) = 0;
  virtual std::vector<NvlinkState> nvlinks(int gpu) = 0;  // counters of now in the *_before fields
  virtual PairObservations pair_static(int from, int to) = 0;
  virtual std::vector<Event> events() = 0;  // since the last call

  // Device memory: hold as much as possible, fill it, verify it. Offsets are bytes in what is held.
  virtual int64_t hold_memory(int gpu, double share_of_total) = 0;  // returns bytes held
  virtual void release_memory(int gpu) = 0;
  virtual void fill(int gpu, const Pattern& pattern) = 0;
  virtual Mismatches verify(int gpu, const Pattern& pattern) = 0;
  virtual double stream_ms(int gpu, Stream stream, int64_t offset, int64_t bytes) = 0;

  // Pinned host memory.
  virtual double transfer_ms(int gpu, Transfer direction, int64_t bytes) = 0;
  virtual int64_t transfer_wrong_words(int gpu, const Pattern& pattern, int64_t bytes) = 0;

  // Compute.
  virtual bool has_matrix_units(int gpu) = 0;
  virtual std::vector<SmRun> sm_runs(int gpu, uint64_t seed) = 0;  // each SM at least once
  virtual Maybe<double> tflops(int gpu, Rate rate) = 0;  // empty: the card has no such units
  virtual double rate_sm_mhz(int gpu) = 0;               // the clock during the last tflops()
  virtual void set_load(int gpu, Load load) = 0;         // runs until changed

  // Peers. Every card has a source and a window of `bytes`. copy_engine and store move `from`'s
  // source into `to`'s window; load moves `to`'s source into `from`'s window.
  virtual void open_peers(int from, int to, int64_t bytes) = 0;
  virtual void window_fill(int gpu, bool source, const Pattern& pattern) = 0;  // by its owner
  virtual Mismatches window_verify(int gpu, const Pattern& pattern) = 0;       // by its owner
  virtual void peer_move(PeerPath path, int from, int to) = 0;
  virtual double peer_move_ms(PeerTiming timing, int from, int to, int64_t bytes) = 0;
  // Two resident kernels that wait for each other; one way, microseconds. `what`: "flag" or bytes.
  virtual double ping_pong_us(int from, int to, const std::string& what) = 0;
  virtual Rung peer_atomics(int from, int to) = 0;
  virtual void close_peers() = 0;

  // Exact all-reduce over all cards.
  virtual Rung all_reduce(bool through_peers, uint64_t seed) = 0;
  virtual std::pair<Rung, std::string> nccl_all_reduce(uint64_t seed) = 0;  // and NCCL's version
};

}  // namespace lockstep::probe
