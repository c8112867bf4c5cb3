#include "hardware-probe/collect/peers.h"

#include <algorithm>

#include "hardware-probe/kernels/workload.h"

namespace lockstep::probe {
namespace {

// Odd sizes on purpose: alignment faults hide behind powers of two.
constexpr int64_t kWindowBytes = (int64_t{64} << 20) + 8 * 1237;
constexpr int64_t kTimedBytes = int64_t{256} << 20;

class OpenPeers {
 public:
  OpenPeers(Backend& backend, int from, int to, int64_t bytes) : backend_(backend) {
    backend.open_peers(from, to, bytes);
  }
  ~OpenPeers() {
    try {
      backend_.close_peers();
    } catch (const Error&) {
      // A lost card has no windows left.
    }
  }
  OpenPeers(const OpenPeers&) = delete;
  OpenPeers& operator=(const OpenPeers&) = delete;

 private:
  Backend& backend_;
};

Rung rung_of(const Mismatches& wrong) {
  Rung rung;
  rung.words = kWindowBytes / 8;
  rung.wrong_words = wrong.count;
  rung.outcome = wrong.count == 0 ? "ok" : "wrong";
  return rung;
}

// The receiver pre-fills its window itself, the data move once, the receiver compares its own
// memory.
Rung move_once(Backend& backend, PeerPath path, int from, int to, uint64_t seed) {
  const Pattern blank{kPatternRandom, mix64(seed)};
  const Pattern sent{kPatternRandom, seed};
  const int sender = path == PeerPath::load ? to : from;
  const int receiver = path == PeerPath::load ? from : to;
  backend.window_fill(receiver, false, blank);
  backend.window_fill(sender, true, sent);
  backend.peer_move(path, from, to);
  return rung_of(backend.window_verify(receiver, sent));
}

Rung guarded(const std::function<Rung()>& climb) {
  Rung rung;
  try {
    return climb();
  } catch (const DeviceLost&) {
    throw;
  } catch (const DeadlinePassed& error) {
    rung.outcome = "hang";
    rung.detail = error.what();
  } catch (const Error& error) {
    rung.outcome = "error";
    rung.detail = error.what();
  }
  return rung;
}

}  // namespace

void climb_ladder(Backend& backend, PairObservations& pair, uint64_t seed,
                  const std::function<void()>& publish) {
  const OpenPeers open(backend, pair.from, pair.to, kWindowBytes);
  const auto rung = [&](const char* name, const std::function<Rung()>& climb) {
    pair.rungs[name] = Rung{"hang", 0, 0, "no answer within the deadline"};
    publish();
    pair.rungs[name] = guarded(climb);
    publish();
  };
  rung("copy",
       [&] { return move_once(backend, PeerPath::copy_engine, pair.from, pair.to, seed + 1); });
  rung("store", [&] { return move_once(backend, PeerPath::store, pair.from, pair.to, seed + 2); });
  rung("load", [&] { return move_once(backend, PeerPath::load, pair.from, pair.to, seed + 3); });
  rung("pingpong", [&] {
    for (const char* what : {"flag", "64", "4096", "65536"}) {
      pair.latency_us[what] = backend.ping_pong_us(pair.from, pair.to, what);
    }
    return Rung{"ok", 0, 0, ""};
  });
  rung("atomics", [&] { return backend.peer_atomics(pair.from, pair.to); });
}

void time_peers(Backend& backend, PairObservations& pair, const Budget& budget) {
  const OpenPeers open(backend, pair.from, pair.to, kTimedBytes);
  const auto samples = [&](PeerTiming timing, int64_t moved) {
    std::vector<double> out;
    for (int i = -1; i < budget.peer_samples; ++i) {
      const double ms = backend.peer_move_ms(timing, pair.from, pair.to, kTimedBytes);
      if (i >= 0 && ms > 0) out.push_back(static_cast<double>(moved) / ms / 1e6);
    }
    return out;
  };
  std::vector<double> small;
  for (int i = 0; i < 11; ++i)
    small.push_back(1000.0 *
                    backend.peer_move_ms(PeerTiming::copy_engine, pair.from, pair.to, 4096));
  std::nth_element(small.begin(), small.begin() + 5, small.end());
  pair.copy_4k_us = small[5];
  pair.copy_gbps = samples(PeerTiming::copy_engine, kTimedBytes);
  pair.store_gbps = samples(PeerTiming::store, kTimedBytes);
  pair.bidirectional_gbps = samples(PeerTiming::both_ways, 2 * kTimedBytes);
  pair.bounce_gbps = samples(PeerTiming::through_host, kTimedBytes);
}

Collective try_collectives(Backend& backend, uint64_t seed) {
  Collective out;
  out.control = guarded([&] { return backend.all_reduce(false, seed); });
  out.own = guarded([&] { return backend.all_reduce(true, seed); });
  out.nccl = guarded([&] {
    auto [rung, version] = backend.nccl_all_reduce(seed);
    out.nccl_version = version;
    return rung;
  });
  return out;
}

}  // namespace lockstep::probe
