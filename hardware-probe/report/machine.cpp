#include "hardware-probe/report/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/mapped_file.h"
#include "hardware-probe/report/profile.h"

namespace lockstep::probe {
namespace {

namespace fs = std::filesystem;

// From the files BUS/information; no library and no root needed.
std::set<std::string> uuids_here(const fs::path& gpus) {
  std::set<std::string> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(gpus, error)) {
    std::ifstream text(entry.path() / "information");
    std::string line;
    while (std::getline(text, line)) {
      if (const size_t at = line.find("GPU-"); at != std::string::npos) out.insert(line.substr(at));
    }
  }
  return out;
}

bool is_of_this_machine(const Profile& profile, const std::set<std::string>& here) {
  const auto present = [&](const CardSummary& card) { return here.count(card.uuid) == 1; };
  return profile.cards.empty() ? here.empty()
                               : std::all_of(profile.cards.begin(), profile.cards.end(), present);
}

std::string summary_of(const Profile& profile) {
  std::string out = profile.cards.empty() ? "no NVIDIA GPU; " : "";
  for (const CardSummary& card : profile.cards) {
    out += fmt::format("{}: read {:.0f} GB/s, {:.0f} MHz under load at {:.0f} C; ",
                       card.row.empty() ? "unknown card" : card.row, card.read_gbps,
                       card.together_mhz, card.together_c);
  }
  for (const ProfileLink& link : profile.links) {
    out += fmt::format("gpu{}>gpu{}: {:.0f} GB/s{}; ", link.from, link.to, link.gbps,
                       link.trusted ? "" : " NOT TRUSTED");
  }
  return out + fmt::format("probe says {} ({})", profile.verdict, profile.mode);
}

}  // namespace

std::string MachineRecord::line() const {
  return doubtful() ? fmt::format("DOUBTFUL ({}): {}", fmt::join(marks, ", "), summary) : summary;
}

std::string MachineRecord::to_json() const {
  return nlohmann::json({{"digest", digest},
                         {"verdict", verdict},
                         {"summary", summary},
                         {"marks", marks},
                         {"doubtful", doubtful()},
                         {"profile", nlohmann::json::parse(profile_json)}})
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

MachineRecord read_machine(const fs::path& profile_file, const fs::path& gpus) {
  MachineRecord out;
  const std::set<std::string> here = uuids_here(gpus);
  if (profile_file.empty()) {
    out.summary = here.empty() ? "no NVIDIA GPU and no probe profile"
                               : fmt::format(
                                     "{} NVIDIA GPU(s), no probe profile: make one with "
                                     "lockstep probe --standard --profile FILE",
                                     here.size());
    if (!here.empty()) out.marks.push_back("unproven");
    return out;
  }
  const Profile profile = profile_from_json(read_text_file(profile_file), profile_file.string());
  out.digest = profile.digest;
  out.verdict = profile.verdict;
  out.summary = summary_of(profile);
  out.profile_json = profile_to_json(profile);
  out.marks = profile.marks;
  // A machine without a GPU has nothing that could be throttled.
  if (profile.cards.empty()) out.marks.clear();
  if (profile.backend != "real") {
    out.marks.push_back("simulated");
  } else if (!is_of_this_machine(profile, here)) {
    out.marks.push_back("elsewhere");
  }
  return out;
}

}  // namespace lockstep::probe
