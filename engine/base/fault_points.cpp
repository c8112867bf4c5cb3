#include "engine/base/fault.h"

#include <iterator>

namespace lockstep {
namespace {

// What the program knows where a fault acts.
constexpr FaultSelectors kPass{.layer = true, .rank = true, .round = true};
constexpr FaultSelectors kWeights{.layer = true, .rank = true};  // they are loaded before any round
constexpr FaultSelectors kRound{.rank = true, .round = true};
constexpr FaultSelectors kWhole{};

constexpr FaultPoint kPoints[] = {
    {"attention.first-segment-unseen", "attention does not see the first 256 positions", kPass},
    {"attention.fp8-scale-missing", "v_proj's FP8 scale is left out", kWeights},
    {"attention.gate-missing", "the output gate of attention is always open", kPass},
    {"attention.gate-of-next-head", "every head takes the output gate of the next one", kPass},
    {"attention.heads-interleaved", "query head h reads KV head h mod n instead of h / group",
     kPass},
    {"attention.k-tail-dropped", "o_proj ignores the last 16 columns of its input", kPass},
    {"attention.newest-key-unseen", "a decode column does not see itself", kPass},
    {"attention.q-gate-swapped", "q_proj's query and gate halves of each head change places",
     kPass},
    {"attention.q-norm-is-k-norm", "queries are normalised with the weights for keys", kWeights},
    {"attention.rope-position-plus-1", "queries are rotated for the next position", kPass},
    {"attention.scale-without-root", "scores are divided by head_dim instead of its root", kPass},
    {"cache.conv-state-lost", "a cache hit starts with an empty convolution", kWhole},
    {"cache.hidden-lost", "a cache hit rebuilds its last MTP slot from a hidden row of zeros",
     kWhole},
    {"cache.hit-past-the-prefix", "a cache hit may take one grid step of another prompt", kWhole},
    {"cache.page-not-copied", "the last page of a cached prefix stays as the page was before",
     kWhole},
    {"cache.wrong-grid-point", "a cache hit restores the recurrent states of position 0", kWhole},
    {"comm.gather-order", "the ranks' logits are put together in the other order", kWhole},
    {"comm.partial-dropped", "one rank's partial sum is lost in every all-reduce", kWhole},
    {"comm.partial-stale", "the last partial sum is that of the product before", kWhole},
    {"comm.partials-in-other-order", "partial sums are added in the order 1, 0", kWhole},
    {"comm.partials-to-fp16", "partial sums are rounded to binary16", kWhole},
    {"comm.partials-unrounded", "partial sums are added before they are rounded", kWhole},
    {"decode.position-plus-1", "decode rotates for one position too far", kWhole},
    {"embedding.next-row", "every token takes the embedding of the next one", kWhole},
    {"gdn.a-log-without-exp", "A_log is taken for exp(A_log)", kWeights},
    {"gdn.beta-is-one", "every write replaces what was stored, whatever b says", kPass},
    {"gdn.chunk-grid-shifted", "prefill cuts its chunks one position early", kWhole},
    {"gdn.conv-one-tap-late", "the convolution's taps are shifted by one", kWeights},
    {"gdn.conv-state-lost-between-chunks", "the convolution starts each prefill chunk from zeros",
     kPass},
    {"gdn.conv-taps-reversed", "the convolution's taps are in reverse order", kWeights},
    {"gdn.decay-missing", "states never decay", kPass},
    {"gdn.decay-of-next-head", "every head takes the decay of the next one", kPass},
    {"gdn.decode-update-lost", "decode reads the state but does not keep its update", kPass},
    {"gdn.dt-bias-missing", "dt_bias is left out", kWeights},
    {"gdn.gate-of-next-head", "every head takes the output gate z of the next one", kPass},
    {"gdn.head-state-lost-at-prompt-end",
     "the state of the first GDN head is zero when decode starts", kPass},
    {"gdn.q-k-swapped", "the delta rule takes queries for keys and keys for queries", kWhole},
    {"gdn.state-lost-at-prompt-end", "all GDN states are zero when decode starts", kPass},
    {"gdn.state-rounded-to-bf16", "the state is rounded to bfloat16 after every pass", kWhole},
    {"gdn.state-transposed-at-prompt-end",
     "keys and values of a state change places when decode starts", kPass},
    {"head.logits-rounded-to-bf16", "logits are rounded to bfloat16", kWhole},
    {"head.logits-shifted-by-one", "the logit of every token is that of the next one", kWhole},
    {"kv.newest-value-lost", "decode stores zeros for its value", kPass},
    {"kv.page-table-off-by-one", "attention reads every page one place too late", kPass},
    {"kv.rounded-to-bf16", "keys and values are rounded to bfloat16 before they are stored", kPass},
    {"kv.write-position-minus-1", "keys and values are stored one position early", kPass},
    {"mlp.block-scale-plus-1", "the first NVFP4 block scale of each up_proj row is one code higher",
     kWeights},
    {"mlp.down-k-tail-dropped", "down_proj ignores the last 16 columns of its input", kPass},
    {"mlp.gate-up-swapped", "gate and up change places", kPass},
    {"mlp.global-scale-missing", "up_proj's NVFP4 global scale is left out", kWeights},
    {"mlp.nibbles-swapped", "even and odd columns of up_proj change places", kWeights},
    {"mlp.rows-permuted", "neighbouring rows of up_proj change places", kWeights},
    {"mlp.scale-of-next-block", "every NVFP4 block of up_proj takes the scale of the next one",
     kWeights},
    {"mrope.delta-ignored",
     "decode goes on at the index of the token, as if the prompt held no picture", kWhole},
    {"mrope.sections-contiguous", "rotary pairs use T, H and W in three blocks instead of in turn",
     kRound},
    {"mrope.temporal-only", "the tokens of a picture all stand at its first position", kWhole},
    {"mtp.inputs-swapped", "the halves of mtp.fc's input change places", kWhole},
    {"mtp.norms-swapped", "the norms of mtp.fc's two inputs change places", kWhole},
    {"norm.eps-1000-times", "RMSNorm adds 1000 eps", kWhole},
    {"norm.weight-offset-missing", "RMSNorm multiplies by w instead of 1 + w", kWhole},
    {"rank.token-differs", "rank 1 chooses another token", kWhole},
    {"replicated.bit-flipped", "a bit of the final norm's rows is flipped", kRound},
    {"replicated.hidden-bit-flipped", "a bit of the residual stream behind a layer is flipped",
     kPass},
    {"residual.mixer-twice", "the mixer's output is added twice", kPass},
    {"residual.mlp-missing", "the MLP's output is not added", kPass},
    {"residual.truncated", "the residual stream is truncated to bfloat16", kWhole},
    {"rope.direction-reversed", "rotation goes backwards", kWhole},
    {"rope.frequencies-of-next-pair", "every rotary pair takes the frequency of the next one",
     kWhole},
    {"rope.half-the-pairs", "only the first half of the rotary pairs is rotated", kWhole},
    {"sampling.penalties-see-refused-drafts", "penalties count every draft of a round", kWhole},
    {"sampling.position-plus-1", "the random number is that of the next position", kWhole},
    {"sampling.presence-ignored", "the presence penalty is left out", kWhole},
    {"sampling.rng-counter-reused", "all tokens of a round draw the same random number", kWhole},
    {"sampling.seed-ignored", "every request draws with seed 0", kWhole},
    {"sampling.temperature-squared", "logits are divided by the square of the temperature", kWhole},
    {"sampling.token-bit-flipped", "a bit of each sampled token is flipped", kRound},
    {"scheduler.seen-ahead-of-arrival",
     "requests count as seen four rounds before they are at hand", kRound},
    {"slots.states-of-previous-request", "a request starts with the states of the one before",
     kWhole},
    {"speculation.conv-state-stale", "a rewind keeps the convolution state of the whole round",
     kWhole},
    {"speculation.delta-state-stale", "a rewind keeps the delta state of the whole round", kWhole},
    {"speculation.draft-position-constant",
     "every draft of a round uses the first draft's MTP slot", kWhole},
    {"speculation.first-draft-taken", "the first draft of a round is taken unseen", kWhole},
    {"speculation.hidden-of-first-column",
     "the drafter sees the first column's hidden row for all columns", kWhole},
    {"speculation.rollback-off-by-one", "a rewind replays one token too few", kWhole},
    {"vision.images-swapped", "the rows of the second picture stand in the first one's place",
     kWhole},
    {"vision.merger-gelu-tanh", "the merger uses the tanh form of GELU", kWhole},
    {"vision.patch-order", "the second and third patch of every block change places", kWhole},
    {"vision.position-nearest", "position embeddings are taken from the nearest place of the table",
     kWhole},
    {"vision.rope-axes-swapped", "rows and columns change places in the tower's rotation", kWhole},
    {"weights.final-norm-is-first", "the final norm has the weights of the first layer's", kWhole},
    {"weights.norm-of-next-layer", "every input norm has the weights of the next layer's",
     kWeights},
};

}  // namespace

const std::vector<FaultPoint>& fault_points() {
  static const std::vector<FaultPoint> points(std::begin(kPoints), std::end(kPoints));
  return points;
}

std::string selector_names(const FaultSelectors& selectors) {
  std::string names;
  const auto add = [&names](bool known, const char* name) {
    if (known) names += (names.empty() ? "" : ", ") + std::string(name);
  };
  add(selectors.layer, "layer");
  add(selectors.rank, "rank");
  add(selectors.round, "round");
  return names;
}

}  // namespace lockstep
