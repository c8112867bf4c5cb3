// Random numbers of the system, for keys, ids and seeds that the proxy draws.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::serve {

// Throws Error when the system gives none.
std::string random_hex(int n_bytes);
uint64_t random_seed();  // below 2^53, so that every JSON reader keeps it exact

}  // namespace lockstep::serve
