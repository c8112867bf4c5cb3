// Do the newest receipts cover the sources as they are now? The rule of ci/policy.json.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "validation/receipt/receipt_file.h"
#include "validation/receipt/waivers.h"
#include "validation/verdict.h"

namespace lockstep {

// Policies that need a receipt, from ci/policy.json. Throws Error.
std::vector<std::string> required_policies(const std::filesystem::path& path);

// What the receipts of a policy vouch for. Throws Error (usage) for a policy that has none.
SourceScope policy_scope(const std::string& policy);

struct UnitCoverage {
  std::string unit;
  Verdict verdict = Verdict::pass;  // MISTRUSTED under a waiver, FAIL without
  std::string detail;               // which file changed, or which waiver holds
};

struct PolicyCoverage {
  std::string policy;
  std::string receipt;  // file name of the newest valid receipt; empty without one
  Verdict verdict = Verdict::pass;
  std::vector<std::string> reasons;  // about the policy as a whole, and receipts left out
  std::vector<UnitCoverage> units;
};

struct CoverageInputs {
  std::filesystem::path source_root;
  std::filesystem::path receipts;  // folder
  std::vector<Waiver> waivers;
  std::string today;
  // lockstep-ops-exact, which computes a receipt's integer-exact outputs again; empty: nobody does.
  std::filesystem::path exact_program = {};
};

// A receipt counts when it is complete, unchanged, and all that is red in it is the fault of single
// ops, which it then does not cover; the newest one is compared. Nothing to cover is MISTRUSTED: it
// proves nothing.
PolicyCoverage policy_coverage(const std::string& policy, const CoverageInputs& inputs);

// "RECEIPT covers 3 of 5 ops as their sources are now, 1 is waived; not: linear", without a
// verdict.
std::string coverage_words(const PolicyCoverage& coverage);

// "file a changed, file b is new, file c is gone", at most a few of them; empty when both are
// equal.
std::string changed_files(const FileDigests& before, const FileDigests& now);

}  // namespace lockstep
