// The files cards/*.json as the build embeds them.
#pragma once

#include <string>
#include <vector>

namespace lockstep::probe {

struct EmbeddedCards {
  std::string name, text;
};

std::vector<EmbeddedCards> embedded_cards();

}  // namespace lockstep::probe
