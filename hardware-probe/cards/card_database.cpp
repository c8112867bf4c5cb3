#include "hardware-probe/cards/card_database.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/base/json_problem.h"
#include "hardware-probe/cards/embedded_cards.h"

namespace lockstep::probe {
namespace {

using Json = nlohmann::json;

// A card's own field, else its family's.
class Fields {
 public:
  Fields(const Json& card, const Json& family) : card_(card), family_(family) {}

  const Json* find(const char* key) const {
    if (card_.contains(key)) return &card_.at(key);
    return family_.contains(key) ? &family_.at(key) : nullptr;
  }

  template <typename T>
  T required(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) fail("field \"{}\" is missing", key);
    return convert<T>(*value, key);
  }

  template <typename T>
  T optional(const char* key, T fallback) const {
    const Json* value = find(key);
    return value == nullptr ? fallback : convert<T>(*value, key);
  }

 private:
  template <typename T>
  static T convert(const Json& value, const char* key) {
    try {
      return value.get<T>();
    } catch (const Json::exception&) {
      fail("field \"{}\" has the wrong type", key);
    }
  }

  const Json& card_;
  const Json& family_;
};

BandwidthBars read_bars(const Fields& fields) {
  const Json bars = fields.required<Json>("bars");
  const Json none = Json::object();
  const Fields inner(bars, none);
  BandwidthBars result{inner.required<double>("read_pass"), inner.required<double>("read_fail"),
                       inner.required<double>("copy_pass"), inner.required<double>("copy_fail")};
  const bool ordered = result.read_fail < result.read_pass && result.copy_fail < result.copy_pass;
  if (!ordered || result.read_pass > 1 || result.copy_pass > 1) {
    fail("field \"bars\" must have 0 < fail < pass <= 1");
  }
  return result;
}

void read_shape(const Fields& fields, Card& card) {
  card.sm = fields.required<int>("sm");
  card.max_sm_mhz = fields.required<int>("max_sm_mhz");
  card.sustained_sm_mhz = fields.optional<int>("sustained_sm_mhz", card.max_sm_mhz);
  card.memory_mhz = fields.required<int>("memory_mhz");
  card.bus_bits = fields.required<int>("bus_bits");
  card.l2_kib = fields.required<int>("l2_kib");
  card.fb_mib = fields.required<int64_t>("fb_mib");
  card.bar1_mib = fields.required<int64_t>("bar1_mib");
  card.power_w = fields.required<double>("power_w");
  card.idle_w = fields.required<double>("idle_w");
  card.nvlinks = fields.required<int>("nvlinks");
  card.nvlink_gbps = fields.required<double>("nvlink_gbps");
  card.pcie_gen = fields.required<int>("pcie_gen");
  card.pcie_width = fields.required<int>("pcie_width");
  if (card.sm <= 0 || card.memory_mhz <= 0 || card.bus_bits <= 0 || card.fb_mib <= 0) {
    fail("sm, memory_mhz, bus_bits and fb_mib must be positive");
  }
}

void read_behaviour(const Fields& fields, Card& card) {
  card.compute_capability = fields.required<std::string>("cc");
  card.memory = fields.required<std::string>("memory");
  card.vbios_prefix = fields.required<std::string>("vbios");
  card.history = fields.required<std::string>("history");
  card.fp32_fma_per_sm = fields.required<double>("fp32_fma_per_sm");
  card.fp64_fma_per_sm = fields.required<double>("fp64_fma_per_sm");
  card.hmma_fma_per_sm = fields.required<double>("hmma_fma_per_sm");
  card.dp4a_per_sm = fields.optional<double>("dp4a_per_sm", 0);
  card.hmma_reach = fields.required<double>("hmma_reach");
  card.ecc = fields.required<bool>("ecc");
  card.modified = fields.optional<bool>("modified", false);
  card.p2p = fields.optional<bool>("p2p", true);
  card.shutdown_c = fields.required<int>("shutdown_c");
  card.slowdown_c = fields.required<int>("slowdown_c");
  card.max_operating_c = fields.required<int>("max_operating_c");
  card.memory_max_c = fields.required<int>("memory_max_c");
  card.last_driver = fields.required<int>("last_driver");
  card.measured_read_gbps = fields.optional<double>("measured_read_gbps", 0);
  card.measured_copy_gbps = fields.optional<double>("measured_copy_gbps", 0);
  card.measured_p2p_gbps = fields.optional<double>("measured_p2p_gbps", 0);
  card.bars = read_bars(fields);
}

std::vector<std::string> resolve_sources(const Json& names, const Json& table) {
  std::vector<std::string> result;
  for (const Json& name : names) {
    const std::string key = name.get<std::string>();
    if (!table.contains(key)) fail("source \"{}\" is not in the file's table of sources", key);
    result.push_back(table.at(key).get<std::string>());
  }
  if (result.empty()) fail("a card needs at least one source");
  return result;
}

Card read_card(const Json& entry, const Json& families, const Json& sources) {
  const Json none = Json::object();
  const Fields own(entry, none);
  Card card;
  card.name = own.required<std::string>("name");
  card.family = own.required<std::string>("family");
  if (!families.contains(card.family)) fail("family \"{}\" is not in the file", card.family);
  const Fields fields(entry, families.at(card.family));
  card.reported = own.required<std::string>("reported");
  card.pci_ids = own.required<std::vector<std::string>>("pci_ids");
  card.form = own.required<std::string>("form");
  card.board = own.required<std::string>("board");
  card.note = own.optional<std::string>("note", "");
  card.unverified = own.required<std::vector<std::string>>("unverified");
  for (const std::string& field : card.unverified) {
    if (fields.find(field.c_str()) == nullptr) fail("unverified field \"{}\" is not there", field);
  }
  card.sources = resolve_sources(own.required<Json>("sources"), sources);
  read_shape(fields, card);
  read_behaviour(fields, card);
  return card;
}

void check_header(const Json& document) {
  const Json none = Json::object();
  const Fields fields(document, none);
  if (fields.required<std::string>("format") != "lockstep-card-database") {
    fail("field \"format\" is not lockstep-card-database");
  }
  if (const int version = fields.required<int>("version"); version != 1) {
    fail("version {} is newer than this program reads (1)", version);
  }
}

}  // namespace

double theoretical_gbps(double memory_mhz, int bus_bits) {
  return memory_mhz * 2.0 * bus_bits / 8.0 / 1000.0;
}

double Card::theory_gbps() const {
  return theoretical_gbps(memory_mhz, bus_bits);
}

double Card::fp32_tflops() const {
  return 2e-6 * sm * fp32_fma_per_sm * max_sm_mhz;
}

void CardDatabase::add_file(const std::string& text, const std::string& origin) {
  std::string where = "header";
  try {
    const Json document = Json::parse(text);
    check_header(document);
    for (const Json& entry : document.at("cards")) {
      where = entry.value("name", "a card without a name");
      Card card = read_card(entry, document.at("families"), document.at("sources"));
      if (find(card.name) != nullptr) fail("the name is there twice");
      cards_.push_back(std::move(card));
    }
  } catch (const Json::exception& error) {
    fail("{}: {}: {}", origin, where, json_problem(error));
  } catch (const Error& error) {
    fail("{}: {}: {}", origin, where, error.what());
  }
}

const Card* CardDatabase::find(const std::string& name) const {
  const auto found = std::find_if(cards_.begin(), cards_.end(),
                                  [&](const Card& card) { return card.name == name; });
  return found == cards_.end() ? nullptr : &*found;
}

const Card& CardDatabase::get(const std::string& name) const {
  if (const Card* card = find(name); card != nullptr) return *card;
  std::string near;
  for (const Card& card : cards_) {
    const bool related = name.size() >= 4 && card.name.compare(0, 4, name, 0, 4) == 0;
    if (related) near += (near.empty() ? "" : ", ") + card.name;
  }
  fail_with(ExitCode::usage, "unknown card \"{}\"{}; --list-cards names all", name,
            near.empty() ? "" : " (near: " + near + ")");
}

const Card* CardDatabase::match(const std::string& pci_id, std::optional<int64_t> fb_mib) const {
  const Card* best = nullptr;
  int64_t best_distance = 0;
  for (const Card& card : cards_) {
    if (std::find(card.pci_ids.begin(), card.pci_ids.end(), pci_id) == card.pci_ids.end()) continue;
    const int64_t distance = fb_mib.has_value() ? std::llabs(*fb_mib - card.fb_mib) : 0;
    if (best == nullptr || distance < best_distance) {
      best = &card;
      best_distance = distance;
    }
  }
  return best;
}

const CardDatabase& card_database() {
  static const CardDatabase database = [] {
    CardDatabase result;
    for (const EmbeddedCards& file : embedded_cards()) result.add_file(file.text, file.name);
    return result;
  }();
  return database;
}

}  // namespace lockstep::probe
