// How the Linux kernel writes what it knows of PCI devices: pure text and bytes in, facts out.
#pragma once

#include <string_view>

#include "hardware-probe/observe/observations.h"

namespace lockstep::probe {

// One record of /dev/kmsg ("6,1234,987654321,-;NVRM: Xid (PCI:0000:3b:00): 79, ..."). Empty for a
// line that does not speak of an NVIDIA card.
Maybe<KernelLine> parse_kernel_line(std::string_view record);

// The total of a file aer_dev_correctable, aer_dev_nonfatal or aer_dev_fatal; empty for other text.
Maybe<int64_t> aer_total(std::string_view text);

// Whether a bridge with this PCI configuration space (4096 bytes) sends requests or completions
// between its ports up to the root. False for a bridge without access control services; empty when
// the extended part is missing.
Maybe<bool> acs_redirects(std::string_view config);

}  // namespace lockstep::probe
