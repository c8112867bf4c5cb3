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
      {"mrope.delta-ignored",
       "decode goes on at the index of the token, as if the prompt held no picture"},
      {"mrope.sections-contiguous",
       "rotary pairs use T, H and W in three blocks instead of in turn"},
      {"mrope.temporal-only", "the tokens of a picture all stand at its first position"},
      {"replicated.bit-flipped", "a bit of the final norm's rows of a decode round is flipped"},
      {"sampling.penalties-see-refused-drafts", "penalties count every draft of a round"},
      {"sampling.rng-counter-reused", "all tokens of a round draw the same random number"},
      {"sampling.token-bit-flipped", "a bit of each sampled token is flipped"},
      {"scheduler.seen-ahead-of-arrival",
       "requests count as seen four rounds before they are at hand"},
      {"speculation.conv-state-stale", "a rewind keeps the convolution state of the whole round"},
      {"speculation.draft-position-constant",
       "every draft of a round uses the first draft's MTP slot"},
      {"speculation.rollback-off-by-one", "a rewind replays one token too few"},
      {"vision.images-swapped", "the rows of the second picture stand in the first one's place"},
      {"vision.merger-gelu-tanh", "the merger uses the tanh form of GELU"},
      {"vision.patch-order", "the second and third patch of every block change places"},
      {"vision.position-nearest",
       "position embeddings are taken from the nearest place of the table"},
      {"vision.rope-axes-swapped", "rows and columns change places in the tower's rotation"},
  };
  return points;
}

}  // namespace lockstep
