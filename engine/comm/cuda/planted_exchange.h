// Faults of card mailboxes that tests plant. A normal build has no trace of them.
#pragma once

#include <string_view>

#include "engine/comm/cuda/exchange_kernel.h"

namespace lockstep {

#ifdef LOCKSTEP_KERNEL_MUTANTS

struct PlantedExchange {
  std::string_view transport;  // whose kernels lie; empty: none
  int rank = 0;                // the rank that does
  cuda::ExchangeFault fault = cuda::ExchangeFault::none;
};
inline PlantedExchange planted_exchange;

inline cuda::ExchangeFault planted_exchange_fault(std::string_view transport, int rank) {
  const bool here = transport == planted_exchange.transport && rank == planted_exchange.rank;
  return here ? planted_exchange.fault : cuda::ExchangeFault::none;
}

#else

constexpr cuda::ExchangeFault planted_exchange_fault(std::string_view, int) {
  return cuda::ExchangeFault::none;
}

#endif

}  // namespace lockstep
