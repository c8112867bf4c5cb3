#include "engine/base/fault.h"

namespace lockstep {

const std::vector<FaultPoint>& fault_points() {
  static const std::vector<FaultPoint> points = {
      {"attention.k-tail-dropped", "o_proj ignores the last 16 columns of its input"},
      {"attention.q-gate-swapped", "q_proj's query and gate halves of each head change places"},
      {"attention.rope-position-plus-1", "queries are rotated for the next position"},
      {"cache.wrong-grid-point", "a cache hit restores the recurrent states of position 0"},
      {"comm.partial-dropped", "one rank's partial sum is lost in every all-reduce"},
      {"gdn.conv-state-lost-between-chunks",
       "the convolution starts each prefill chunk from zeros"},
      {"gdn.head-state-lost-at-prompt-end",
       "the state of the first GDN head is zero when decode starts"},
      {"gdn.state-lost-at-prompt-end", "all GDN states are zero when decode starts"},
      {"kv.page-table-off-by-one", "attention reads every page one place too late"},
      {"mlp.block-scale-plus-1",
       "the first NVFP4 block scale of each up_proj row is one code higher"},
      {"mlp.rows-permuted", "neighbouring rows of up_proj change places"},
      {"sampling.penalties-see-refused-drafts", "penalties count every draft of a round"},
      {"sampling.rng-counter-reused", "all tokens of a round draw the same random number"},
      {"speculation.conv-state-stale", "a rewind keeps the convolution state of the whole round"},
      {"speculation.draft-position-constant",
       "every draft of a round uses the first draft's MTP slot"},
      {"speculation.rollback-off-by-one", "a rewind replays one token too few"},
  };
  return points;
}

}  // namespace lockstep
