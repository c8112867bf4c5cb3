// Formats that are known, by measurement, to be the slow choice on a card.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct SlowFormat {
  const char* card;    // part of the card's name as the driver tells it
  const char* family;  // of the format (quant_claims.h)
  const char* note;    // what is faster, and by how much
};

const std::vector<SlowFormat>& slow_formats();

// Names of the cards in this machine as the driver's files tell them; empty without an NVIDIA
// driver.
std::vector<std::string> installed_cards();

}  // namespace lockstep
