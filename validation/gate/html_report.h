// The gate's report as one HTML file that needs nothing else: no script, no font, no network.
#pragma once

#include <string>

#include "validation/gate/gate.h"
#include "validation/gate/receipt.h"

namespace lockstep {

std::string html_report(const GateReport& report, const ReceiptFacts& facts);

}  // namespace lockstep
