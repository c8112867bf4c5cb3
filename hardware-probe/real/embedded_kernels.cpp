#include "hardware-probe/real/embedded_kernels.h"

namespace lockstep::probe {

#ifdef LOCKSTEP_PROBE_FATBIN

__asm__(
    ".section .rodata\n"
    ".balign 16\n"
    ".global lockstep_probe_fatbin\n"
    ".hidden lockstep_probe_fatbin\n"
    "lockstep_probe_fatbin:\n"
    ".incbin \"" LOCKSTEP_PROBE_FATBIN
    "\"\n"
    ".previous\n");

extern "C" const unsigned char lockstep_probe_fatbin[];

const void* embedded_kernels() {
  return lockstep_probe_fatbin;
}
std::vector<int> embedded_kernel_archs() {
  return {LOCKSTEP_PROBE_ARCHS};
}
bool embedded_ptx() {
  return true;
}

#else

const void* embedded_kernels() {
  return nullptr;
}
std::vector<int> embedded_kernel_archs() {
  return {};
}
bool embedded_ptx() {
  return false;
}

#endif

}  // namespace lockstep::probe
