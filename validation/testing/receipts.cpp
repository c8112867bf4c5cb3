#include "validation/testing/receipts.h"

#include <nlohmann/json.hpp>

#include "validation/receipt/coverage.h"

namespace lockstep::testing {

std::string receipt_json(const std::filesystem::path& source_root, const ReceiptPlan& plan) {
  using Json = nlohmann::json;
  const SourceScope scope = policy_scope(plan.policy);
  Json units = Json::object();
  for (const auto& [unit, files] : source_units(source_root, scope)) {
    units[unit] = {{"digest", unit_digest(files)}, {"files", files}};
  }
  const Json step = {{"id", "i1"}, {"verdict", plan.verdict}, {"detail", "12 prompts"}};
  const Json receipt = {{"format", kReceiptFormat},
                        {"format_version", kReceiptVersion},
                        {"policy", plan.policy},
                        {"verdict", plan.verdict},
                        {"complete", plan.complete},
                        {"fault", plan.fault},
                        {"command", "lockstep gate"},
                        {"host", {{"started", plan.started}, {"cpu", "any"}}},
                        {"sources", {{"scope", scope_name(scope)}, {"units", units}}},
                        {"steps", Json::array({step})}};
  Json whole = receipt;
  if (!plan.exact_program.empty()) {
    const auto seeds = exact_seeds(source_units(source_root, scope));
    const auto outputs = run_exact(plan.exact_program, "cpu", seeds).outputs;
    whole["ops"] = {{"exact", Json::parse(exact_json(outputs))}};
  }
  return whole.dump();
}

std::filesystem::path write_receipt(const std::filesystem::path& source_root,
                                    const std::filesystem::path& folder, const ReceiptPlan& plan) {
  return add_receipt(folder, sealed_receipt(receipt_json(source_root, plan)));
}

}  // namespace lockstep::testing
