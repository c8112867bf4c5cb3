// How decode attention cuts positions into segments: by absolute position alone, so that the order
// of a sum depends on nothing else. Early positions have short segments, which keep a card busy
// with short contexts; later ones have longer segments, which leave fewer partial sums to merge.
#pragma once

#ifdef __CUDACC__
#define LOCKSTEP_BOTH_SIDES __host__ __device__
#else
#define LOCKSTEP_BOTH_SIDES
#endif

namespace lockstep {

// `n_a_level` segments of `base` positions, then as many of twice that length, and so on; those of
// the last level go on for ever. base: a multiple of kAttentionStep.
struct AttentionSegments {
  int base = 256;
  int n_a_level = 72;
  int n_levels = 3;

  struct Range {
    int first;
    int end;
  };

  LOCKSTEP_BOTH_SIDES int index_of(int position) const {
    int start = 0;
    int index = 0;
    int length = base;
    for (int level = 1; level < n_levels; ++level) {
      if (position - start < n_a_level * length) break;
      start += n_a_level * length;
      index += n_a_level;
      length *= 2;
    }
    return index + (position - start) / length;
  }

  LOCKSTEP_BOTH_SIDES Range range(int index) const {
    int start = 0;
    int length = base;
    for (int level = 1; level < n_levels; ++level) {
      if (index < n_a_level) break;
      start += n_a_level * length;
      index -= n_a_level;
      length *= 2;
    }
    return {start + index * length, start + (index + 1) * length};
  }
};

}  // namespace lockstep
