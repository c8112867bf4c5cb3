// Runs catalogue rows: plants the fault, runs the detector, and says whether it was caught and
// named.
#pragma once

#include <filesystem>
#include <string>

#include "faultinject/catalogue.h"

namespace lockstep {

struct CampaignOptions {
  std::filesystem::path model;
  std::filesystem::path oracle;    // prefix
  std::filesystem::path programs;  // folder of lockstep-compare and lockstep-generate
};

struct Finding {
  bool caught = false;  // the detector turned red
  bool named = false;   // and what it named begins as the catalogue says
  std::string found;    // what it named, or why it could not judge
};

// `plant` false runs the detector without the fault: it must then be silent.
Finding run_row(const CatalogueRow& row, const CampaignOptions& options, bool plant);

}  // namespace lockstep
