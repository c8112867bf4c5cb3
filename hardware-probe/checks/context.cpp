#include "hardware-probe/checks/context.h"

#include <algorithm>

namespace lockstep::probe {

const char* status_name(Status status) {
  switch (status) {
    case Status::pass:
      return "pass";
    case Status::info:
      return "info";
    case Status::warn:
      return "warn";
    case Status::fail:
      return "fail";
    case Status::skip:
      return "skip";
    case Status::inconclusive:
      return "inconclusive";
  }
  return "?";
}

Context::Context(const Observations& observations, const CardDatabase& database,
                 std::string claimed)
    : seen(observations), cards(database), claim(std::move(claimed)) {
  for (const GpuObservations& gpu : seen.gpus) {
    rows_.push_back(cards.match(gpu.identity.pci_id, gpu.identity.fb_mib));
  }
}

const Step* Context::step(const std::string& check, const std::string& target) const {
  for (const Step& step : seen.steps) {
    if (step.check == check && step.target == target) return &step;
  }
  return nullptr;
}

std::string Context::label(int gpu) const {
  const Card* card = row(gpu);
  return fmt::format("gpu{} ({})", gpu,
                     card == nullptr ? this->gpu(gpu).identity.name.value_or("?") : card->name);
}

Finding& Report::add(Status status, Text reason, Text remedy) {
  Finding finding;
  finding.check = check_;
  finding.name = name_;
  finding.target = target_;
  finding.status = status;
  finding.reason = std::move(reason);
  finding.remedy = std::move(remedy);
  findings_.push_back(std::move(finding));
  return findings_.back();
}

Finding& Report::add(Status status, const Threshold& threshold, double value, Text reason,
                     Text remedy) {
  Finding& finding = add(status, std::move(reason), std::move(remedy));
  finding.value = value;
  finding.unit = threshold.unit;
  finding.threshold = threshold.value;
  finding.source = threshold.source;
  return finding;
}

bool Report::has(Status status) const {
  return std::any_of(findings_.begin(), findings_.end(),
                     [&](const Finding& finding) { return finding.status == status; });
}

void Report::conclude(Text facts) {
  const bool fine = std::all_of(findings_.begin(), findings_.end(), [](const Finding& finding) {
    return finding.status == Status::pass || finding.status == Status::info;
  });
  add(fine ? Status::pass : Status::info, std::move(facts));
}

}  // namespace lockstep::probe
