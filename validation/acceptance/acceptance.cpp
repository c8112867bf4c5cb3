#include "validation/acceptance/acceptance.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/json_problem.h"
#include "engine/base/mapped_file.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

struct Sums {
  double drafted = 0;
  double accepted = 0;

  void add(const PromptAcceptance& prompt, double sign) {
    drafted += sign * static_cast<double>(prompt.drafted);
    accepted += sign * static_cast<double>(prompt.accepted);
  }
  double share() const { return drafted > 0 ? accepted / drafted : 0; }
};

// An oracle's prompts whose drafts cover every step; drafted = accepted / acceptance.
std::vector<PromptAcceptance> of_oracle(const Json& json) {
  std::vector<PromptAcceptance> prompts;
  for (const Json& prompt : json.at("prompts")) {
    if (!prompt.contains("mtp_accepted") || !prompt["mtp_accepted"].is_number()) continue;
    if (prompt.at("mtp_drafts").size() + 1 != prompt.at("greedy").size()) continue;
    const bool picture = !prompt.at("image").is_null() || !prompt.at("images").is_null();
    const double share = prompt.at("mtp_acceptance").get<double>();
    const auto accepted = prompt["mtp_accepted"].get<int64_t>();
    if (picture || share <= 0) continue;
    prompts.push_back({prompt.at("name").get<std::string>(),
                       std::llround(static_cast<double>(accepted) / share), accepted});
  }
  return prompts;
}

std::vector<PromptAcceptance> of_store(const Json& json) {
  std::vector<PromptAcceptance> prompts;
  for (const Json& prompt : json.at("acceptance")) {
    prompts.push_back({json_field<std::string>(prompt, "name"),
                       json_field<int64_t>(prompt, "drafted"),
                       json_field<int64_t>(prompt, "accepted")});
  }
  return prompts;
}

std::vector<PromptAcceptance> sorted(std::vector<PromptAcceptance> prompts) {
  std::ranges::sort(prompts, {}, &PromptAcceptance::name);
  return prompts;
}

PairedVerdict verdict_of(const Interval& interval, double margin) {
  if (interval.low > -margin && interval.high < margin) return PairedVerdict::same;
  if (interval.high < 0) return PairedVerdict::worse;
  if (interval.low > 0) return PairedVerdict::better;
  return PairedVerdict::undecided;
}

}  // namespace

double student_t95(int64_t degrees_of_freedom) {
  // Exact to the digits shown up to 10, then the expansion in 1 / df about the normal quantile.
  constexpr std::array<double, 10> kTable = {6.3138, 2.9200, 2.3534, 2.1318, 2.0150,
                                             1.9432, 1.8946, 1.8595, 1.8331, 1.8125};
  LOCKSTEP_CHECK(degrees_of_freedom >= 1);
  if (degrees_of_freedom <= 10) return kTable[static_cast<size_t>(degrees_of_freedom) - 1];
  constexpr double kZ = 1.6448536269514722;
  const auto df = static_cast<double>(degrees_of_freedom);
  return kZ + (kZ * kZ * kZ + kZ) / (4 * df) +
         (5 * std::pow(kZ, 5) + 16 * std::pow(kZ, 3) + 3 * kZ) / (96 * df * df);
}

AcceptanceReport judge_acceptance(const std::vector<PromptAcceptance>& run,
                                  const std::vector<PromptAcceptance>& baseline, double margin) {
  const std::vector<PromptAcceptance> a = sorted(run);
  const std::vector<PromptAcceptance> b = sorted(baseline);
  const bool paired =
      std::ranges::equal(a, b, {}, &PromptAcceptance::name, &PromptAcceptance::name);
  if (!paired) fail_with(ExitCode::could_not_judge, "the runs hold other prompts");
  const auto n = static_cast<double>(a.size());
  Sums sum_a;
  Sums sum_b;
  for (const PromptAcceptance& prompt : a) sum_a.add(prompt, 1);
  for (const PromptAcceptance& prompt : b) sum_b.add(prompt, 1);
  if (a.size() < 2 || sum_a.drafted <= 0 || sum_b.drafted <= 0) {
    fail_with(ExitCode::could_not_judge, "need two prompts with drafts on both sides");
  }
  AcceptanceReport report;
  report.run = sum_a.share();
  report.baseline = sum_b.share();
  report.n_prompts = static_cast<int64_t>(a.size());
  report.margin = margin;
  std::vector<double> without;
  double mean = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    Sums rest_a = sum_a;
    Sums rest_b = sum_b;
    rest_a.add(a[i], -1);
    rest_b.add(b[i], -1);
    without.push_back(rest_a.share() - rest_b.share());
    mean += without.back() / n;
  }
  double squares = 0;
  for (const double value : without) squares += (value - mean) * (value - mean);
  const double error = std::sqrt((n - 1) / n * squares);
  const double half = student_t95(report.n_prompts - 1) * error;
  const double difference = report.run - report.baseline;
  report.interval = {difference - half, difference + half};
  report.verdict = verdict_of(report.interval, margin);
  return report;
}

std::vector<PromptAcceptance> read_acceptance(const std::filesystem::path& path) {
  std::filesystem::path file = path;
  if (!std::filesystem::exists(file)) file += ".json";
  const std::string text = read_text_file(file, size_t{1} << 30);
  try {
    const Json json = Json::parse(text);
    return json.contains("acceptance") ? of_store(json) : of_oracle(json);
  } catch (const std::exception& error) {
    fail_with(ExitCode::could_not_judge, "{}: neither an oracle nor a store of acceptance: {}",
              file.string(), json_problem(error));
  }
}

std::string store_acceptance(const std::vector<PromptAcceptance>& prompts) {
  Json json = {{"version", 1}, {"acceptance", Json::array()}};
  for (const PromptAcceptance& prompt : prompts) {
    json["acceptance"].push_back(
        {{"name", prompt.name}, {"drafted", prompt.drafted}, {"accepted", prompt.accepted}});
  }
  return json.dump(1) + "\n";
}

std::string acceptance_text(const AcceptanceReport& report) {
  return fmt::format(
      "acceptance {:.3f}, baseline {:.3f} ({} prompts)\ndifference {:+.3f}, 90 % interval {:+.3f} "
      "to {:+.3f}, margin {:.3f}\nverdict: {}\n",
      report.run, report.baseline, report.n_prompts, report.run - report.baseline,
      report.interval.low, report.interval.high, report.margin,
      paired_verdict_name(report.verdict));
}

std::string acceptance_json(const AcceptanceReport& report) {
  const Json json = {{"verdict", paired_verdict_name(report.verdict)},
                     {"run", report.run},
                     {"baseline", report.baseline},
                     {"interval_90", {report.interval.low, report.interval.high}},
                     {"margin", report.margin},
                     {"prompts", report.n_prompts}};
  return json.dump(1) + "\n";
}

}  // namespace lockstep
