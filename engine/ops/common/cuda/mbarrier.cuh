// Barriers in shared memory that count arrivals and bytes, tiles that the copy engine brings, and
// registers that warp groups hand over: sm_90 and up.
#pragma once

#include <cstdint>

namespace lockstep::cuda {

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, int n_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(n_arrivals)
               : "memory");
}
// What mbarrier_init wrote is there for the copy engine too.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives; the phase ends no sooner than the copy engine has brought n_bytes.
__device__ __forceinline__ void mbarrier_arrive_for_bytes(uint32_t barrier, uint32_t n_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(n_bytes)
               : "memory");
}
// Until the phase of this parity has ended; parity 1 of a new barrier has.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// A box of the tensor that `map` describes, from its element (x, y, z) on, to shared memory; its
// bytes count at the barrier.
__device__ __forceinline__ void copy_box(uint32_t to, const void* map, int x, int y, int z,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
}

// Threads of a block that meet at a numbered barrier; 0 is that of __syncthreads.
template <int kThreads>
__device__ __forceinline__ void meet(int number) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}
// Registers of each thread of the warp group from here on.
template <int kRegisters>
__device__ __forceinline__ void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace lockstep::cuda
