// Matrix instructions of a warp group (four warps), sm_90a: the second operand from shared memory,
// the first from registers or from there.
#pragma once

#include <cstdint>

namespace lockstep::cuda {

// A matrix of rows of 64 16-bit values (K) in shared memory at a multiple of 1024 bytes: eight rows
// fill 1024 bytes, and 16-byte vector v of row r lies in place v xor (r mod 8).
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t shared_address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 / 16} << 32;
  constexpr uint64_t kUnused = uint64_t{1} << 16;
  return kSwizzle128 | kEightRows | kUnused | ((shared_address & 0x3ffffu) >> 4);
}

// A matrix of 256 columns, a row of them for each value of K: panels of 64 columns, `panel_bytes`
// apart, each with its rows of 128 bytes and their vectors as above.
__device__ __forceinline__ uint64_t wgmma_descriptor_of_rows(uint32_t shared_address,
                                                             uint32_t panel_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 / 16} << 32;
  return kSwizzle128 | kEightRows | uint64_t{panel_bytes / 16} << 16 |
         ((shared_address & 0x3ffffu) >> 4);
}

// Registers that products read or add to are ready.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// What this thread wrote to shared memory may be read by wgmma after the next barrier.
__device__ __forceinline__ void fence_for_wgmma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Operands of the product below: sums i .. i + n - 1, and their places in the instruction's text.
#define LOCKSTEP_SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define LOCKSTEP_SUMS_8(i)                                                                    \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define LOCKSTEP_SUMS_16(i) LOCKSTEP_SUMS_8(i), LOCKSTEP_SUMS_8(i + 8)
#define LOCKSTEP_SUMS_32(i) LOCKSTEP_SUMS_16(i), LOCKSTEP_SUMS_16(i + 16)
#define LOCKSTEP_SUMS_64(i) LOCKSTEP_SUMS_32(i), LOCKSTEP_SUMS_32(i + 32)
#define LOCKSTEP_SUMS_128(i) LOCKSTEP_SUMS_64(i), LOCKSTEP_SUMS_64(i + 64)
// The same, only written.
#define LOCKSTEP_NEW_8(i)                                                                     \
  "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3]), "=f"(d[i + 4]), "=f"(d[i + 5]), \
      "=f"(d[i + 6]), "=f"(d[i + 7])
#define LOCKSTEP_NEW_16(i) LOCKSTEP_NEW_8(i), LOCKSTEP_NEW_8(i + 8)
#define LOCKSTEP_NEW_32(i) LOCKSTEP_NEW_16(i), LOCKSTEP_NEW_16(i + 16)
#define LOCKSTEP_NEW_64(i) LOCKSTEP_NEW_32(i), LOCKSTEP_NEW_32(i + 32)
#define LOCKSTEP_PLACES_4 "%0, %1, %2, %3"
#define LOCKSTEP_PLACES_8 LOCKSTEP_PLACES_4 ", %4, %5, %6, %7"
#define LOCKSTEP_PLACES_12 LOCKSTEP_PLACES_8 ", %8, %9, %10, %11"
#define LOCKSTEP_PLACES_16 LOCKSTEP_PLACES_12 ", %12, %13, %14, %15"
#define LOCKSTEP_PLACES_20 LOCKSTEP_PLACES_16 ", %16, %17, %18, %19"
#define LOCKSTEP_PLACES_24 LOCKSTEP_PLACES_20 ", %20, %21, %22, %23"
#define LOCKSTEP_PLACES_32 \
  LOCKSTEP_PLACES_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define LOCKSTEP_PLACES_64                                                           \
  LOCKSTEP_PLACES_32                                                                 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define LOCKSTEP_PLACES_128                                                                      \
  LOCKSTEP_PLACES_64                                                                             \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"             \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"             \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
  "%127"
#define LOCKSTEP_WGMMA_SHARED(shape_and_types)                                \
  asm volatile(                                                               \
      "{.reg .pred p; setp.ne.b32 p, %34, 0; "                                \
      "wgmma.mma_async.sync.aligned." shape_and_types " {" LOCKSTEP_PLACES_32 \
      "}, %32, %33, p, 1, 1, 0, 0;}"                                          \
      : LOCKSTEP_SUMS_32(0)                                                   \
      : "l"(a), "l"(b), "r"(static_cast<int>(add)))
#define LOCKSTEP_WGMMA_ROWS(shape_and_types)                                   \
  asm volatile(                                                                \
      "{.reg .pred p; setp.ne.b32 p, 1, 0; "                                   \
      "wgmma.mma_async.sync.aligned." shape_and_types " {" LOCKSTEP_PLACES_128 \
      "}, {%128, %129, %130, %131}, %132, p, 1, 1, 1;}"                        \
      : LOCKSTEP_SUMS_128(0)                                                   \
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b))
// `shape_and_types` of n_sums sums; `rest` are the places of A and of the descriptor of B. kind:
// SUMS adds to D (add is 1), NEW overwrites it (0).
#define LOCKSTEP_WGMMA(kind, add, n_sums, shape_and_types, rest)                             \
  asm volatile("{.reg .pred p; setp.ne.b32 p, " add                                          \
               ", 0; "                                                                       \
               "wgmma.mma_async.sync.aligned." shape_and_types " {" LOCKSTEP_PLACES_##n_sums \
               "}, " rest ", p, 1, 1, 0;}"                                                   \
               : LOCKSTEP_##kind##_##n_sums(0)                                               \
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b))
#define LOCKSTEP_WGMMA_SHAPES(kind, add)                                                    \
  if constexpr (kSums == 16 && kBf16) {                                                     \
    LOCKSTEP_WGMMA(kind, add, 16, "m64n32k16.f32.bf16.bf16", "{%16, %17, %18, %19}, %20");  \
  } else if constexpr (kSums == 16) {                                                       \
    LOCKSTEP_WGMMA(kind, add, 16, "m64n32k16.f32.f16.f16", "{%16, %17, %18, %19}, %20");    \
  } else if constexpr (kSums == 32 && kBf16) {                                              \
    LOCKSTEP_WGMMA(kind, add, 32, "m64n64k16.f32.bf16.bf16", "{%32, %33, %34, %35}, %36");  \
  } else if constexpr (kSums == 32) {                                                       \
    LOCKSTEP_WGMMA(kind, add, 32, "m64n64k16.f32.f16.f16", "{%32, %33, %34, %35}, %36");    \
  } else if constexpr (kBf16) {                                                             \
    LOCKSTEP_WGMMA(kind, add, 64, "m64n128k16.f32.bf16.bf16", "{%64, %65, %66, %67}, %68"); \
  } else {                                                                                  \
    LOCKSTEP_WGMMA(kind, add, 64, "m64n128k16.f32.f16.f16", "{%64, %65, %66, %67}, %68");   \
  }

// D = A B + D, 64 x 2 kSums x 16, float32 sums, for 32, 64 and 128 columns. A: warp w of the group
// has rows 16 w.., laid out as for mma.m16n8k16; D likewise, columns 8 j.. in d[4 j..]. B: a row of
// 16 values of K for each column.
template <bool kBf16, int kSums>
__device__ __forceinline__ void wgmma_k16(float (&d)[kSums], uint32_t a0, uint32_t a1, uint32_t a2,
                                          uint32_t a3, uint64_t b) {
  static_assert(kSums == 16 || kSums == 32 || kSums == 64);
  LOCKSTEP_WGMMA_SHAPES(SUMS, "1")
}

// D = A B.
template <bool kBf16, int kSums>
__device__ __forceinline__ void wgmma_k16_first(float (&d)[kSums], uint32_t a0, uint32_t a1,
                                                uint32_t a2, uint32_t a3, uint64_t b) {
  static_assert(kSums == 16 || kSums == 32 || kSums == 64);
  LOCKSTEP_WGMMA_SHAPES(NEW, "0")
}

// D = A B (+ D), 64 x 64 x 16, both operands in shared memory, a row of 16 values of K for each row
// of A and column of B. Without `add` D is overwritten.
template <bool kBf16>
__device__ __forceinline__ void wgmma_shared_k16(float (&d)[32], uint64_t a, uint64_t b, bool add) {
  if constexpr (kBf16) {
    LOCKSTEP_WGMMA_SHARED("m64n64k16.f32.bf16.bf16");
  } else {
    LOCKSTEP_WGMMA_SHARED("m64n64k16.f32.f16.f16");
  }
}

// D = A B + D, 64 x 256 x 16, A from registers as above. B: a row of 256 columns for each of 16
// values of K; `b` is a wgmma_descriptor_of_rows.
template <bool kBf16>
__device__ __forceinline__ void wgmma_rows_k16(float (&d)[128], uint32_t a0, uint32_t a1,
                                               uint32_t a2, uint32_t a3, uint64_t b) {
  if constexpr (kBf16) {
    LOCKSTEP_WGMMA_ROWS("m64n256k16.f32.bf16.bf16");
  } else {
    LOCKSTEP_WGMMA_ROWS("m64n256k16.f32.f16.f16");
  }
}

// D = A B (+ D), 64 x 8 kTiles x 16, for few columns: binary16, operands as above. Without `add` D
// is overwritten.
#define LOCKSTEP_WGMMA_FEW(n_columns, places, rest, b_at, add_at, ...)                       \
  asm volatile("{.reg .pred p; setp.ne.b32 p, " add_at                                       \
               ", 0; wgmma.mma_async.sync.aligned.m64n" n_columns "k16.f32.f16.f16 {" places \
               "}, {" rest "}, " b_at ", p, 1, 1, 0;}"                                       \
               : __VA_ARGS__                                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)))
template <int kTiles>
__device__ __forceinline__ void wgmma_columns(float (&d)[4 * kTiles], const uint32_t* a, uint64_t b,
                                              bool add) {
  static_assert(kTiles >= 1 && kTiles <= 6);
  if constexpr (kTiles == 1) {
    LOCKSTEP_WGMMA_FEW("8", LOCKSTEP_PLACES_4, "%4, %5, %6, %7", "%8", "%9", LOCKSTEP_SUMS_4(0));
  } else if constexpr (kTiles == 2) {
    LOCKSTEP_WGMMA_FEW("16", LOCKSTEP_PLACES_8, "%8, %9, %10, %11", "%12", "%13",
                       LOCKSTEP_SUMS_8(0));
  } else if constexpr (kTiles == 3) {
    LOCKSTEP_WGMMA_FEW("24", LOCKSTEP_PLACES_12, "%12, %13, %14, %15", "%16", "%17",
                       LOCKSTEP_SUMS_8(0), LOCKSTEP_SUMS_4(8));
  } else if constexpr (kTiles == 4) {
    LOCKSTEP_WGMMA_FEW("32", LOCKSTEP_PLACES_16, "%16, %17, %18, %19", "%20", "%21",
                       LOCKSTEP_SUMS_8(0), LOCKSTEP_SUMS_8(8));
  } else if constexpr (kTiles == 5) {
    LOCKSTEP_WGMMA_FEW("40", LOCKSTEP_PLACES_20, "%20, %21, %22, %23", "%24", "%25",
                       LOCKSTEP_SUMS_8(0), LOCKSTEP_SUMS_8(8), LOCKSTEP_SUMS_4(16));
  } else if constexpr (kTiles == 6) {
    LOCKSTEP_WGMMA_FEW("48", LOCKSTEP_PLACES_24, "%24, %25, %26, %27", "%28", "%29",
                       LOCKSTEP_SUMS_8(0), LOCKSTEP_SUMS_8(8), LOCKSTEP_SUMS_8(16));
  }
}
#undef LOCKSTEP_WGMMA_FEW

// Keeps what touches these sums on its side of this place: products run on after their instruction.
template <int kSums>
__device__ __forceinline__ void hold_sums(float (&d)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#undef LOCKSTEP_WGMMA_ROWS
#undef LOCKSTEP_WGMMA_SHARED
#undef LOCKSTEP_WGMMA_SHAPES
#undef LOCKSTEP_WGMMA
#undef LOCKSTEP_PLACES_128
#undef LOCKSTEP_PLACES_64
#undef LOCKSTEP_PLACES_32
#undef LOCKSTEP_PLACES_24
#undef LOCKSTEP_PLACES_20
#undef LOCKSTEP_PLACES_16
#undef LOCKSTEP_PLACES_12
#undef LOCKSTEP_PLACES_8
#undef LOCKSTEP_PLACES_4
#undef LOCKSTEP_NEW_64
#undef LOCKSTEP_NEW_32
#undef LOCKSTEP_NEW_16
#undef LOCKSTEP_NEW_8
#undef LOCKSTEP_SUMS_128
#undef LOCKSTEP_SUMS_64
#undef LOCKSTEP_SUMS_32
#undef LOCKSTEP_SUMS_16
#undef LOCKSTEP_SUMS_8
#undef LOCKSTEP_SUMS_4

}  // namespace lockstep::cuda
