#include "hardware-probe/sim/sim_backend.h"

#include <algorithm>
#include <map>

#include "hardware-probe/kernels/golden.h"
#include "hardware-probe/kernels/workload.h"
#include "hardware-probe/observe/pcie_rate.h"
#include "hardware-probe/sim/sim_card.h"

namespace lockstep::probe::sim {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr double kPcieShare = 0.80, kPeerPcieShare = 0.78, kBounceShare = 0.60,
                 kNvlinkShare = 0.967;

// What lies in a window of memory that peers may touch.
struct Window {
  Pattern pattern{-1, 0};  // kind -1: never written
};

class SimBackend final : public Backend {
 public:
  explicit SimBackend(Machine machine) : machine_(std::move(machine)) {
    for (const Chip& chip : machine_.chips) cards_.emplace_back(chip);
    if (machine_.last_card_hidden) hidden_.push_back(cards_.back()), cards_.pop_back();
  }

  std::string name() const override { return "sim"; }
  double now_s() override { return now_s_; }
  void sleep_s(double seconds) override { advance(seconds); }

  HostFacts host() override {
    HostFacts out = machine_.host;
    if (!out.root) {
      out.acs = "unknown";
      out.acs_bridges.clear();
      out.kernel_log.reset();
    }
    return out;
  }
  StackFacts stack() override {
    return machine_.nvml || machine_.cuda ? machine_.stack : StackFacts{};
  }
  int n_gpus() override {
    return machine_.nvml || machine_.cuda ? static_cast<int>(cards_.size()) : 0;
  }

  Visibility visible() override {
    Visibility out;
    out.nvml_present = machine_.nvml;
    out.cuda_present = machine_.cuda;
    if (!machine_.nvml) out.nvml_error = "libnvidia-ml.so.1: cannot open shared object file";
    if (!machine_.cuda) out.cuda_error = "libcuda.so.1: cannot open shared object file";
    const auto note = [&](const SimCard& card, bool listed) {
      const GpuIdentity& id = card.chip.identity;
      out.sysfs.push_back(id.bus_id + " " + id.pci_id);
      if (listed && machine_.nvml) out.nvml.push_back(id.bus_id);
      if (listed && machine_.cuda) out.cuda.push_back(id.bus_id);
    };
    for (const SimCard& card : cards_) note(card, true);
    for (const SimCard& card : hidden_) note(card, false);
    return out;
  }

  GpuIdentity identity(int gpu) override {
    GpuIdentity id = alive(gpu).chip.identity;
    if (machine_.nvml) return id;
    // CUDA alone tells less.
    GpuIdentity less;
    less.bus_id = id.bus_id;
    less.pci_id = id.pci_id;
    less.name = id.name;
    less.compute_capability = id.compute_capability;
    less.sm_count = id.sm_count;
    less.fb_mib = id.fb_mib;
    return less;
  }
  GpuConfig config(int gpu) override { return answer(gpu).chip.config; }
  GpuHistory history(int gpu) override {
    SimCard& card = answer(gpu);
    GpuHistory out = card.chip.history;
    if (out.volatile_corrected.has_value()) *out.volatile_corrected += card.ecc_corrected;
    return out;
  }
  Sample sample(int gpu) override {
    SimCard& card = alive(gpu);
    if (!machine_.nvml) return {};
    if (card.loaded() && card.chip.xid_during_load != 0 && !xid_reported_) {
      xid_reported_ = true;
      events_.push_back({now_s_, gpu, "xid", card.chip.xid_during_load});
    }
    if (card.loaded() && card.chip.logged_xid_during_load != 0)
      log_xid(card, std::exchange(card.chip.logged_xid_during_load, 0));
    return card.sample();
  }
  PcieLink pcie_link(int gpu) override {
    const SimCard& card = answer(gpu);
    PcieLink link;
    link.gen = card.chip.pcie_gen;
    link.width = card.chip.pcie_width;
    link.hops = {fmt::format("{}: gen {} x{}", card.chip.identity.bus_id, card.chip.pcie_gen,
                             card.chip.pcie_width)};
    return link;
  }
  Maybe<int64_t> pcie_replays(int gpu) override { return answer(gpu).pcie_replays; }
  Maybe<AerCounts> aer(int gpu) override { return alive(gpu).aer; }
  std::pair<Maybe<double>, Maybe<double>> violation_s(int gpu) override {
    const SimCard& card = alive(gpu);
    if (!machine_.nvml) return {};
    return {card.heat_s, card.power_s};
  }
  std::vector<NvlinkState> nvlinks(int gpu) override {
    const SimCard& card = answer(gpu);
    std::vector<NvlinkState> out;
    for (int i = 0; i < card.chip.card.nvlinks; ++i) {
      NvlinkState link;
      link.link = i;
      link.active = links_up() && i >= card.chip.dead_nvlinks;
      link.mbps = static_cast<int>(card.chip.card.nvlink_gbps * 1000);
      link.crc_before = i == 0 ? card.nvlink_crc : 0;
      link.replay_before = 0;
      link.recovery_before = i == 0 ? card.nvlink_recoveries : 0;
      out.push_back(link);
    }
    return out;
  }
  PairObservations pair_static(int from, int to) override {
    alive(from), alive(to);
    PairObservations pair;
    pair.from = from;
    pair.to = to;
    pair.can_access = peers_possible() && !machine_.link.denied;
    for (const char* cap : {"read", "write", "nvlink", "atomics"})
      pair.caps[cap] = *pair.can_access ? "ok" : "not supported";
    pair.nvlinks = links_up() ? active_links() : 0;
    pair.ancestor = pair.nvlinks > 0 ? "nvlink" : "hostbridge";
    return pair;
  }
  std::vector<Event> events() override { return std::exchange(events_, {}); }

  int64_t hold_memory(int gpu, double share) override {
    SimCard& card = ready(gpu);
    const double part = std::min(share, card.chip.free_memory_share);
    const auto bytes =
        static_cast<int64_t>(static_cast<double>(card.chip.card.fb_mib) * part) * kMiB;
    card.memory.hold(bytes);
    return bytes;
  }
  void release_memory(int gpu) override { alive(gpu).memory.hold(0); }
  void fill(int gpu, const Pattern& pattern) override {
    SimCard& card = ready(gpu);
    if (++card.fills > card.chip.lost_after_fills) lose(gpu);
    if (card.chip.memory_test_hangs) {
      advance(180);
      throw DeadlinePassed("the memory kernel did not return");
    }
    card.memory.fill(pattern, now_s_);
    advance(static_cast<double>(card.memory.bytes()) / 1e9 / card.theory_gbps());
  }
  Mismatches verify(int gpu, const Pattern& pattern) override {
    SimCard& card = ready(gpu);
    advance(static_cast<double>(card.memory.bytes()) / 1e9 / card.theory_gbps());
    card.ecc_corrected += card.chip.ecc_corrected_per_pass;
    return card.memory.verify(pattern, card.chip, card.temperature_c(), now_s_);
  }
  double stream_ms(int gpu, Stream stream, int64_t offset, int64_t bytes) override {
    SimCard& card = ready(gpu);
    const auto held = static_cast<double>(std::max<int64_t>(card.memory.bytes(), 1));
    double gbps = card.read_gbps(static_cast<double>(offset) / held,
                                 static_cast<double>(offset + bytes) / held);
    if (stream == Stream::write) gbps = card.theory_gbps() * 0.95;
    if (stream == Stream::copy) gbps = card.copy_gbps() / 2;
    const double ms = static_cast<double>(bytes) / gbps / 1e6 * card.noise();
    advance(ms / 1000);
    return ms;
  }

  double transfer_ms(int gpu, Transfer direction, int64_t bytes) override {
    SimCard& card = ready(gpu);
    card.pcie_replays += card.chip.pcie_replays_per_transfer;
    card.aer.correctable += card.chip.aer_correctable_per_transfer;
    card.aer.uncorrectable += card.chip.aer_uncorrectable_per_transfer;
    const double moved = static_cast<double>(direction == Transfer::both ? 2 * bytes : bytes);
    const double gbps = lane_gbps(card) * kPcieShare * (direction == Transfer::both ? 1.8 : 1.0);
    const double ms = moved / gbps / 1e6 * card.noise();
    advance(ms / 1000);
    return ms;
  }
  int64_t transfer_wrong_words(int gpu, const Pattern&, int64_t) override {
    return ready(gpu).chip.pcie_wrong_words;
  }

  bool has_matrix_units(int gpu) override {
    return ready(gpu).chip.card.compute_capability >= "7.0";
  }
  std::vector<SmRun> sm_runs(int gpu, uint64_t seed) override {
    SimCard& card = ready(gpu);
    auto [known, fresh] = golden_.try_emplace({seed, has_matrix_units(gpu)}, 0);
    if (fresh) known->second = golden_sm_hash(seed, has_matrix_units(gpu));
    advance(0.01);
    return card.run_sms(known->second, now_s_);
  }
  Maybe<double> tflops(int gpu, Rate rate) override {
    SimCard& card = ready(gpu);
    const Card& model = card.chip.card;
    if (rate == Rate::matrix && model.hmma_fma_per_sm <= 0) return {};
    if (rate == Rate::dp4a && model.dp4a_per_sm <= 0) return {};
    card.set_load(Load::matrix);
    advance(0.5);
    const double per_fma = 2e-6 * model.sm * card.sm_mhz() * card.noise();
    rate_clock_mhz_ = card.sm_mhz();
    card.set_load(Load::none);
    if (rate == Rate::fp32) return per_fma * model.fp32_fma_per_sm * 0.97 * card.chip.fp32_speed;
    if (rate == Rate::dp4a) return per_fma * 4 * model.dp4a_per_sm * 0.97 * card.chip.dp4a_speed;
    if (rate == Rate::fp64) return per_fma * model.fp64_fma_per_sm * 0.97;
    return per_fma * model.hmma_fma_per_sm * model.hmma_reach * 0.98 * card.chip.matrix_speed;
  }
  double rate_sm_mhz(int) override { return rate_clock_mhz_; }
  void set_load(int gpu, Load load) override {
    SimCard& card = ready(gpu);
    if (load == Load::none && card.loaded()) card.load_ended_s = now_s_;
    card.set_load(load);
  }

  void open_peers(int from, int to, int64_t) override { ready(from), ready(to); }
  void close_peers() override { windows_.clear(), mirrors_.clear(); }
  void window_fill(int gpu, bool source, const Pattern& pattern) override {
    ready(gpu), windows_[{gpu, source}].pattern = pattern;
  }
  Mismatches window_verify(int gpu, const Pattern& expected) override {
    ready(gpu);
    const Pattern held = windows_[{gpu, false}].pattern;
    Mismatches out;
    constexpr uint64_t kWords = ((uint64_t{64} << 20) + 8 * 1237) / 8;
    if (held.kind == expected.kind && held.seed == expected.seed) return out;
    out.count = static_cast<int64_t>(kWords);
    out.first.push_back({0, pattern_word(expected.kind, expected.seed, 0),
                         held.kind < 0 ? 0 : pattern_word(held.kind, held.seed, 0), 0, ""});
    return out;
  }
  void peer_move(PeerPath path, int from, int to) override {
    ready(from), ready(to);
    const Link& link = machine_.link;
    if (path == PeerPath::load) {
      // A mirror answers reads from its own, never written copy.
      windows_[{from, false}].pattern =
          link.mirror ? mirrors_[to].pattern : windows_[{to, true}].pattern;
      return;
    }
    if (link.drop_all || (link.drop_stores && path == PeerPath::store)) return;
    (link.mirror ? mirrors_[to] : windows_[{to, false}]).pattern = windows_[{from, true}].pattern;
  }
  double peer_move_ms(PeerTiming timing, int from, int to, int64_t bytes) override {
    ready(to);
    SimCard& sender = ready(from);
    count_link_errors(from), count_link_errors(to);
    const double lanes = std::min(lane_gbps(sender), lane_gbps(cards_[static_cast<size_t>(to)]));
    double gbps = lanes * kPeerPcieShare;
    if (const int links = links_up() ? active_links() : 0; links > 0)
      gbps = links * link_gbps(sender.chip.card);
    gbps *= machine_.link.speed;
    if (timing == PeerTiming::through_host) gbps = lanes * kBounceShare;
    const double moved = static_cast<double>(timing == PeerTiming::both_ways ? 2 * bytes : bytes);
    if (timing == PeerTiming::both_ways) gbps *= 1.9;
    const double latency_ms = (machine_.link.copy_4k_us > 0 && timing != PeerTiming::through_host
                                   ? machine_.link.copy_4k_us
                                   : 3.2) /
                              1000;
    const double ms = latency_ms + moved / gbps / 1e6 * sender.noise();
    advance(ms / 1000);
    return ms;
  }
  double ping_pong_us(int from, int to, const std::string& what) override {
    ready(from), ready(to);
    if (machine_.link.ping_pong_hangs) {
      advance(10);
      throw DeadlinePassed("the two kernels never met");
    }
    const double base = machine_.link.latency_us > 0 ? machine_.link.latency_us
                        : links_up()                 ? 1.1
                                                     : 1.4;
    const double bytes = what == "flag" ? 0 : std::stod(what);
    return base + bytes / (links_up() ? 120e3 : 11e3);
  }
  Rung peer_atomics(int from, int to) override {
    ready(from), ready(to);
    if (!links_up()) return {"unsupported", 0, 0, "no atomics over this path"};
    // A sum that lands in a mirror or nowhere is not there when the owner looks.
    const bool lost = machine_.link.mirror || machine_.link.drop_all;
    return {lost ? "wrong" : "ok", lost ? 1 : 0, 1, ""};
  }
  Rung all_reduce(bool through_peers, uint64_t) override {
    for (int gpu = 0; gpu < n_gpus(); ++gpu) ready(gpu);
    if (!through_peers) return {"ok", 0, 1 << 22, ""};
    if (!peers_possible() || machine_.link.denied) return {"unsupported", 0, 0, "no peer access"};
    const Link& link = machine_.link;
    if (link.ping_pong_hangs) return {"hang", 0, 0, "no answer within the deadline"};
    const bool wrong = link.wrong_sums || link.mirror || link.drop_all || link.drop_stores;
    return {wrong ? "wrong" : "ok", wrong ? 1 << 22 : 0, 1 << 22, ""};
  }
  std::pair<Rung, std::string> nccl_all_reduce(uint64_t seed) override {
    if (machine_.stack.nccl.empty()) return {{"unsupported", 0, 0, "no NCCL"}, ""};
    const auto usable = [&](const KernelLibrary& library) {
      return std::all_of(cards_.begin(), cards_.end(), [&](const SimCard& card) {
        return has_kernels_for(
            library, static_cast<int>(std::stod(card.chip.card.compute_capability) * 10 + 0.5));
      });
    };
    const auto& found = machine_.stack.nccl;
    const auto best = std::find_if(found.begin(), found.end(), usable);
    if (best == found.end())
      return {{"error", 0, 0, "named symbol not found"}, found.front().version};
    Rung rung = all_reduce(true, seed);
    if (rung.outcome == "unsupported") rung = all_reduce(false, seed);
    return {rung, best->version};
  }

 private:
  void advance(double seconds) {
    now_s_ += seconds;
    for (size_t i = 0; i < cards_.size(); ++i) {
      bool neighbour = false;
      for (size_t j = 0; j < cards_.size(); ++j)
        neighbour = neighbour || (j != i && cards_[j].loaded());
      cards_[i].advance(seconds, neighbour);
    }
  }

  void log_xid(const SimCard& card, int xid) {
    if (!machine_.host.kernel_log.has_value()) return;
    const std::string& bus = card.chip.identity.bus_id;
    machine_.host.kernel_log->push_back(
        {1000 + now_s_, bus, xid,
         fmt::format("NVRM: Xid (PCI:{}): {}, pid=4711", bus.substr(0, bus.find('.')), xid)});
  }

  [[noreturn]] void lose(int gpu) {
    SimCard& card = cards_[static_cast<size_t>(gpu)];
    card.lost = true;
    if (!card.loss_reported) {
      events_.push_back({now_s_, gpu, "xid", 79});
      events_.push_back({now_s_, gpu, "lost", 0});
    }
    card.loss_reported = true;
    throw DeviceLost(fmt::format("gpu{} has fallen off the bus", gpu));
  }

  SimCard& alive(int gpu) {
    SimCard& card = cards_.at(static_cast<size_t>(gpu));
    if (card.lost) lose(gpu);
    return card;
  }
  // For answers that only NVML gives.
  SimCard& answer(int gpu) {
    if (!machine_.nvml) fail("NVML is not there");
    return alive(gpu);
  }
  // For everything that computes.
  SimCard& ready(int gpu) {
    if (!machine_.cuda) fail("no CUDA driver");
    return alive(gpu);
  }

  bool peers_possible() const {
    return cards_.size() > 1 && std::all_of(cards_.begin(), cards_.end(),
                                            [](const SimCard& card) { return card.chip.card.p2p; });
  }
  bool links_up() const {
    return cards_.size() > 1 && cards_.front().chip.card.nvlinks > 0 &&
           cards_.front().chip.card.form == cards_.back().chip.card.form &&
           cards_.back().chip.card.nvlinks == cards_.front().chip.card.nvlinks;
  }
  // One link, one way, as a healthy pair reaches it.
  static double link_gbps(const Card& card) {
    return card.measured_p2p_gbps > 0 ? card.measured_p2p_gbps / card.nvlinks
                                      : card.nvlink_gbps * kNvlinkShare;
  }
  int active_links() const {
    return cards_.front().chip.card.nvlinks - cards_.back().chip.dead_nvlinks;
  }
  double lane_gbps(const SimCard& card) const {
    return pcie_gbps(card.chip.pcie_gen, card.chip.pcie_width) * card.chip.pcie_speed;
  }
  void count_link_errors(int gpu) {
    SimCard& card = cards_[static_cast<size_t>(gpu)];
    card.nvlink_crc += card.chip.nvlink_crc_per_move;
    card.nvlink_recoveries += card.chip.nvlink_recoveries_per_move;
  }

  Machine machine_;
  std::vector<SimCard> cards_, hidden_;
  double now_s_ = 0;
  std::vector<Event> events_;
  bool xid_reported_ = false;
  double rate_clock_mhz_ = 0;
  std::map<std::pair<uint64_t, bool>, uint64_t> golden_;
  std::map<std::pair<int, bool>, Window> windows_;
  std::map<int, Window> mirrors_;
};

}  // namespace

std::unique_ptr<Backend> open_sim(Machine machine) {
  return std::make_unique<SimBackend>(std::move(machine));
}

}  // namespace lockstep::probe::sim
