// Receipts as files: the canonical form, its digest and signature, and what a reader makes of them.
// Format: docs/formats/receipt.md.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "validation/ops/op_exact.h"
#include "validation/receipt/source_digest.h"

namespace lockstep {

inline constexpr int kReceiptVersion = 3;
inline constexpr const char* kReceiptFormat = "lockstep-receipt";

// The receipt `json` (text of an object) with "digest", and with "signature" when `key_file` is not
// empty: indented JSON, ends with a newline.
std::string sealed_receipt(const std::string& json, const std::filesystem::path& key_file = {});

// Throws Error that names `label` when `text` is no receipt, a newer one, or its digest or
// signature does not fit.
void verify_receipt(const std::string& text, const std::string& label);

// What verification asks of a receipt.
struct ReceiptSummary {
  std::string file;
  std::string policy;
  std::string verdict;
  std::string started;    // UTC, ISO 8601
  bool complete = false;  // every check of its policy ran, on the product as it is (no fault)
  bool is_signed = false;
  std::string scope;  // of sources
  SourceUnits units;
  // Op -> the check that is red because of it. A red check that blames no op speaks of all.
  std::map<std::string, std::string> blamed;
  bool blames_all = false;
  std::vector<ExactOutput> exact;  // what the card answered to integer-exact cases
};

// Throws what verify_receipt throws.
ReceiptSummary read_receipt(const std::filesystem::path& path);

// Writes into an append-only folder as POLICY-STARTED-DIGEST.json and returns the path. Throws
// Error when that file exists.
std::filesystem::path add_receipt(const std::filesystem::path& folder, const std::string& receipt);

// Lines for people: what was judged, on what, with which result.
std::string receipt_text(const std::string& receipt, const std::string& label);

// Lines "path: a -> b" of every value that differs; "host" and what follows from it left out. Empty
// when the receipts say the same.
std::vector<std::string> receipt_differences(const std::string& a, const std::string& b);

}  // namespace lockstep
