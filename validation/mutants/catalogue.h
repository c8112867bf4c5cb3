// The fault catalogue: which fault must be caught by which check of the gate, and what the check
// must name. Data: faultinject/catalogue.json, described in docs/formats/fault-catalogue.md.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace lockstep {

struct CatalogueRow {
  std::string fault;  // NAME[@layer=...], as --fault takes it
  std::string check;  // the gate's check that sees it first and cheapest
  std::string names;  // what the finding must begin with; empty where several may be the first
  std::vector<std::string> prompts;  // the oracle's prompts that show it; empty: the shortest
  std::string equivalent;            // why nothing can see it; empty for a mutant that counts
  std::string survives;  // why no check of the gate sees it; empty for one that is caught

  // Some check of the gate must see it.
  bool caught() const { return equivalent.empty() && survives.empty(); }
  std::string point() const { return fault.substr(0, fault.find('@')); }
};

// How GoogleTest prints a row.
void PrintTo(const CatalogueRow& row, std::ostream* out);

// Throws Error that names the row for anything unknown.
std::vector<CatalogueRow> parse_catalogue(const std::string& json, const std::string& label);

// The catalogue that this build was made with.
std::vector<CatalogueRow> built_in_catalogue();

// `n` rows spread evenly over the catalogue, always the same ones; all of them for n < 0.
std::vector<CatalogueRow> catalogue_sample(const std::vector<CatalogueRow>& rows, int n);

}  // namespace lockstep
