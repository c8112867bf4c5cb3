// Receipts for tests: small, complete, of a source tree as it is now.
#pragma once

#include <string>

#include "validation/receipt/receipt_file.h"

namespace lockstep::testing {

struct ReceiptPlan {
  std::string policy = "gpu";
  std::string verdict = "PASS";
  bool complete = true;
  std::string fault = {};
  std::string started = "2026-01-31T12:00:00Z";
  std::filesystem::path exact_program = {};  // answers the integer-exact cases; empty: none
};

// Text of an object, not yet sealed.
std::string receipt_json(const std::filesystem::path& source_root, const ReceiptPlan& plan);

// Sealed and added to `folder`; returns its path.
std::filesystem::path write_receipt(const std::filesystem::path& source_root,
                                    const std::filesystem::path& folder, const ReceiptPlan& plan);

}  // namespace lockstep::testing
