// The fault catalogue: which fault must be caught by which detector, and what the detector must
// name. Data: faultinject/catalogue.json, described in docs/formats/fault-catalogue.md.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace lockstep {

enum class Detector {
  compare,    // the comparison with the oracle, fp32
  depths,     // I4: sampled text is the same for k = 0 and k = 3
  cache,      // I5: the same prompt again, from the prefix cache, gives the same logits
  agreement,  // I2: two ranks halt in the round in which they differ
};

struct CatalogueRow {
  std::string fault;  // NAME[@layer=...], as --fault takes it
  Detector detector = Detector::compare;
  std::string names;  // what the finding must begin with
  int tp = 1;
  int mtp = 0;
  int prefill_grid = 512;

  std::string point() const { return fault.substr(0, fault.find('@')); }
};

// How GoogleTest prints a row.
void PrintTo(const CatalogueRow& row, std::ostream* out);

const char* detector_name(Detector detector);

// Throws Error that names the row for anything unknown.
std::vector<CatalogueRow> parse_catalogue(const std::string& json, const std::string& label);

// The catalogue that this build was made with.
std::vector<CatalogueRow> built_in_catalogue();

}  // namespace lockstep
