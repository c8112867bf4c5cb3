#include "engine/device/cards.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "engine/base/error.h"

namespace lockstep {
namespace {

constexpr size_t kShortestUuid = 4;  // digits of one that is not written out

std::vector<std::string> names_of(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    names.emplace_back(list.substr(0, comma));
    if (names.back().empty() || comma + 1 == list.size()) {
      fail_with(ExitCode::usage, "--devices: an empty name; write for example 0,1");
    }
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return names;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

std::string described(const std::vector<Card>& cards) {
  if (cards.empty()) return "the driver shows no card";
  std::string text = cards.size() == 1 ? "here is" : "here are";
  for (const Card& card : cards) {
    text += fmt::format("{} card {} ({}, {})", card.index == 0 ? "" : ";", card.index, card.uuid,
                        card.pci_id);
  }
  return text;
}

std::optional<int> index_in(const std::string& name) {
  int index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  const bool whole = error == std::errc() && end == name.data() + name.size();
  return whole && index >= 0 && index < 1000 ? std::optional<int>(index) : std::nullopt;
}

bool matches(const Card& card, const std::string& name) {
  if (const auto index = index_in(name)) return card.index == *index;
  const std::string given = lower(name);
  if (given.find(':') != std::string::npos) {
    const std::string pci = lower(card.pci_id);
    return pci == given || pci.substr(std::min(pci.size(), pci.find(':') + 1)) == given;
  }
  const std::string prefix = "gpu-";
  const std::string digits = given.starts_with(prefix) ? given.substr(prefix.size()) : given;
  return digits.size() >= kShortestUuid && lower(card.uuid).starts_with(prefix + digits);
}

int card_named(const std::string& name, const std::vector<Card>& cards) {
  std::vector<int> found;
  for (const Card& card : cards) {
    if (matches(card, name)) found.push_back(card.index);
  }
  if (found.size() > 1) {
    fail_with(ExitCode::usage, "--devices: '{}' fits {} cards; {}", name, found.size(),
              described(cards));
  }
  if (found.empty()) {
    fail_with(ExitCode::device_error,
              "--devices: no card '{}' (an index, UUID or PCI id); {}; see nvidia-smi", name,
              described(cards));
  }
  return found[0];
}

}  // namespace

std::vector<int> choose_cards(std::string_view list, int n_ranks, bool may_share,
                              const std::vector<Card>& cards) {
  std::vector<std::string> names = names_of(list);
  const auto n = static_cast<size_t>(n_ranks);
  const size_t n_needed = may_share ? 1 : n;
  if (names.empty()) {
    if (cards.size() < n_needed) {
      fail_with(ExitCode::device_error,
                "{} ranks need {} cards: {}; --tp 1 runs on one, --share-device puts both ranks on "
                "one",
                n, n_needed, described(cards));
    }
    for (size_t i = 0; i < std::min(n, cards.size()); ++i) {
      names.push_back(std::to_string(cards[i].index));
    }
  }
  if (may_share && names.size() == 1) names.resize(n, names[0]);
  if (names.size() != n) {
    fail_with(ExitCode::usage, "--devices {}: {} names for {} ranks", list, names.size(), n);
  }
  std::vector<int> chosen;
  for (const std::string& name : names) {
    const int index = card_named(name, cards);
    if (!may_share && std::find(chosen.begin(), chosen.end(), index) != chosen.end()) {
      fail_with(ExitCode::usage,
                "--devices {}: card {} for both ranks is slower than --tp 1; add --share-device if "
                "that is meant",
                list, index);
    }
    chosen.push_back(index);
  }
  return chosen;
}

}  // namespace lockstep
