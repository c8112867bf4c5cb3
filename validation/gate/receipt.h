// The receipt of a gate: what was judged, how, and with which result. Format:
// docs/formats/receipt.md.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "validation/gate/gate.h"

namespace lockstep {

inline constexpr int kReceiptVersion = 1;

struct ReceiptFacts {
  std::string command;  // as typed, without the program's folder
  GateOptions options;
  std::string started;  // UTC, ISO 8601
  double seconds = 0;
};

// The receipt as indented JSON with its own digest in "digest".
std::string make_receipt(const GateReport& report, const ReceiptFacts& facts);

// Throws Error that names `label` when `text` is no receipt, a newer one, or its digest does not
// fit.
void verify_receipt(const std::string& text, const std::string& label);

// 128-bit digest over the names and bytes of a folder's files (not its subfolders), in name order.
std::string folder_digest(const std::filesystem::path& folder);

// The same over the programs that this one was installed with.
std::string programs_digest();

// Now, UTC, "2026-01-31T12:00:00Z".
std::string utc_now();

}  // namespace lockstep
