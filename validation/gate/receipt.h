// The receipt of a gate: what was judged, how, and with which result. Format:
// docs/formats/receipt.md.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "validation/gate/gate.h"
#include "validation/receipt/receipt_file.h"

namespace lockstep {

struct ReceiptFacts {
  std::string command;  // as typed, without the program's folder
  GateOptions options;
  std::string started;  // UTC, ISO 8601
  double seconds = 0;
  std::filesystem::path key_file;  // Ed25519, PEM; empty: not signed
};

// The receipt as indented JSON with its own digest in "digest".
std::string make_receipt(const GateReport& report, const ReceiptFacts& facts);

// 128-bit digest over the names and bytes of a folder's files (not its subfolders), in name order.
std::string folder_digest(const std::filesystem::path& folder);

// The same over the programs that this one was installed with.
std::string programs_digest();

}  // namespace lockstep
