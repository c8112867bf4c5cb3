// What a rank used alone takes from its surroundings. Behind the proxy these come with the request,
// so that two ranks use the same.
#pragma once

#include <cstdint>

namespace lockstep {

int64_t unix_time_now_s();

// From the kernel.
uint64_t random_u64();

}  // namespace lockstep
