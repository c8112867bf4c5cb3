// Waivers: an unproven op, or a red check, that somebody answers for until a date. Format:
// docs/formats/waiver.md.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

inline constexpr int kWaiverVersion = 1;
inline constexpr int kWaiverDays = 14;

struct Waiver {
  std::string op;     // this, or
  std::string check;  // this
  std::string owner;
  std::string reason;
  std::string issued;   // "2026-01-31", UTC
  std::string expires;  // at most kWaiverDays later; the last day on which it holds

  // "op linear" or "check bench-gate".
  std::string subject() const;
  bool expired(const std::string& today) const { return expires < today; }
};

// Throws Error that names the waiver for a missing field, a date that is none, or more than
// kWaiverDays between the dates.
std::vector<Waiver> parse_waivers(const std::string& json, const std::string& label);
// None when there is no such file.
std::vector<Waiver> read_waivers(const std::filesystem::path& path);

// The waiver that holds today; null without one.
const Waiver* waiver_for_op(const std::vector<Waiver>& waivers, const std::string& op,
                            const std::string& today);
const Waiver* waiver_for_check(const std::vector<Waiver>& waivers, const std::string& check,
                               const std::string& today);

// Today, UTC, "2026-01-31".
std::string utc_today();
// Now, UTC, "2026-01-31T12:00:00Z".
std::string utc_now();

}  // namespace lockstep
