// The card database: what each card should be, from the reviewed files cards/*.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::probe {

// Least share of theoretical bandwidth; between fail and pass the check warns.
struct BandwidthBars {
  double read_pass = 0, read_fail = 0, copy_pass = 0, copy_fail = 0;
};

struct Card {
  std::string name;      // the database's own name, "V100-SXM2-32GB"
  std::string reported;  // what the driver calls it
  std::vector<std::string> pci_ids;
  std::string family, form, compute_capability, memory, vbios_prefix, board, note;
  std::string history;  // "pages", "rows" or "none": how memory defects are kept
  int sm = 0, max_sm_mhz = 0, sustained_sm_mhz = 0, memory_mhz = 0, bus_bits = 0, l2_kib = 0;
  int64_t fb_mib = 0, bar1_mib = 0;
  double power_w = 0, idle_w = 0;
  int nvlinks = 0;
  double nvlink_gbps = 0;  // one link, one direction
  int pcie_gen = 0, pcie_width = 0;
  double fp32_fma_per_sm = 0, fp64_fma_per_sm = 0,
         hmma_fma_per_sm = 0;  // per clock; 0 = none or unknown
  double dp4a_per_sm = 0;      // instructions of four products each, per clock; 0 = unknown
  double hmma_reach = 1;       // share of the matrix peak that warp-level instructions reach
  bool ecc = false, modified = false, p2p = true;
  int shutdown_c = 0, slowdown_c = 0, max_operating_c = 0, memory_max_c = 0;  // 0 = not documented
  int last_driver = 0;  // last driver branch that supports it; 0 = still supported
  // What a healthy card reached; 0 = nobody has published it.
  double measured_read_gbps = 0, measured_copy_gbps = 0, measured_p2p_gbps = 0;
  BandwidthBars bars;
  std::vector<std::string> unverified, sources;  // field names; full source texts

  double theory_gbps() const;
  double fp32_tflops() const;  // at the maximum clock
};

// GB/s of a double-data-rate memory: MHz x 2 x bits / 8 / 1000. Holds for every card in the
// database.
double theoretical_gbps(double memory_mhz, int bus_bits);

class CardDatabase {
 public:
  // Throws Error that names `origin` and the field when a file breaks the format.
  void add_file(const std::string& text, const std::string& origin);

  const std::vector<Card>& cards() const { return cards_; }
  const Card* find(const std::string& name) const;
  // Throws Error (usage) that names near matches.
  const Card& get(const std::string& name) const;
  // The row with this PCI id whose memory size is nearest, or null.
  const Card* match(const std::string& pci_id, std::optional<int64_t> fb_mib) const;

 private:
  std::vector<Card> cards_;
};

// The database built into this program.
const CardDatabase& card_database();

}  // namespace lockstep::probe
