// Which cards the ranks run on: what a user names becomes indices for open_device("cuda:N").
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct Card {
  int index = 0;       // as in "cuda:N"
  std::string uuid;    // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  std::string pci_id;  // "0000:3b:00.0"
};

// The cards that open_device can open; none in a build without CUDA and on a machine without a
// driver.
std::vector<Card> cuda_cards();

// The index of each rank's card. `list` names them in the order of the ranks, with commas: an
// index, a UUID (also without "GPU-", or its first digits) or a PCI id (also without the domain);
// empty takes the first ones. Throws Error, usage for the list itself, device_error for a card that
// is not among `cards`. One card for several ranks only if `may_share`; then a single name does.
std::vector<int> choose_cards(std::string_view list, int n_ranks, bool may_share,
                              const std::vector<Card>& cards);

}  // namespace lockstep
