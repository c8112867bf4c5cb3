// Everything that a rank keeps on a card: weights, KV pages, recurrent states and the buffers of
// its passes, in one arena that is reserved at start.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/device_communicator.h"
#include "engine/device/arena.h"
#include "engine/device/cuda/op_clock.h"
#include "engine/device/cuda/side_stream.h"
#include "engine/ops/attention/cuda/attention_plan_cuda.h"
#include "engine/ops/common/cuda/gdn_round.h"
#include "engine/ops/gated_delta/cuda/gated_delta_cuda.h"
#include "engine/rank/cuda/card_weights.h"
#include "engine/rank/cuda/host_rows.h"
#include "engine/rank/engine_options.h"
#include "engine/rank/layers.h"

namespace lockstep {

// Most columns and spans of one pass.
struct PassLimits {
  int64_t n_columns = 0;   // a prefill chunk with the MTP slot before it, or a decode round
  int64_t n_gdn_rows = 0;  // rows between the GDN ops: see gdn_round.h
  int64_t n_decode = 0;    // columns of a decode round
  int n_slots = 0;
  int64_t n_pages = 0;  // of one sequence
};

// bfloat16 unless said otherwise. "wide" buffers serve both kinds of mixers and the MLP.
struct PassBuffers {
  uint16_t* hidden = nullptr;       // [n_columns, hidden] residual stream
  uint16_t* normed = nullptr;       // [n_columns, hidden]
  uint16_t* partials[2] = {};       // [n_columns, hidden] half-K sums of a branch
  uint16_t* mtp_hidden = nullptr;   // [n_columns, hidden] rows that the MTP layer starts from
  uint16_t* mtp_joined = nullptr;   // [n_columns, 2 * hidden]
  uint16_t* mtp_x = nullptr;        // [n_columns, hidden]
  uint16_t* wide[3] = {};           // query and gate | raw conv inputs | gate; q | z | up; outputs
  uint16_t* mixed = nullptr;        // [n_gdn_rows, conv channels]
  uint16_t* narrow[2] = {};         // k, v | a, b
  float* log_decay = nullptr;       // [n_gdn_rows, v heads]
  float* beta = nullptr;            // [n_gdn_rows, v heads]
  float* angles = nullptr;          // [n_columns, pairs, 2]
  float* logits = nullptr;          // [n_decode, logits_stride]
  float* local_logits = nullptr;    // [n_decode, local_logits_stride], with two ranks
  std::byte* prepared[2] = {};      // activations as products read them, of two at once
  std::byte* attention = nullptr;   // partial sums of decode attention
  std::byte* delta = nullptr;       // of chunked prefill
  std::byte* inputs[2] = {};        // of a pass and of the last columns of its spans
  uint32_t* page_tables = nullptr;  // [n_slots, n_pages]
};

// Recurrent states of all slots, slot-major, all GDN layers of a slot together.
struct CardStates {
  float* delta = nullptr;      // [n_slots, layers, v heads, dk, dv]
  uint16_t* window = nullptr;  // [n_slots, layers, kConvWindowRows, channels]
  float* gates = nullptr;      // [n_slots, layers, 2, kGdnRoundColumns, v heads]
  int64_t delta_size = 0;      // values of one layer of one slot
  int64_t window_size = 0;
  int64_t gates_size = 0;
  int n_layers = 0;
};

class CardModel {
 public:
  // Throws Error that names what no kernel is registered for, or that says what does not fit.
  CardModel(const Model& model, const EngineOptions& options);

  const Model& model;
  Device& device;
  std::unique_ptr<DeviceCommunicator> through_host;  // where the options have no transport
  DeviceCommunicator* transport;                     // null: one rank
  std::unique_ptr<Stream> stream;                    // its waits end with the transport's errors
  SideStream side;
  OpClock clock;
  HostRows rows;
  PassLimits limits;
  CardWeights weights;
  PassBuffers buffers;
  CardStates states;
  AttentionCudaPlan decode_attention;
  AttentionCudaPlan prefill_attention;
  GatedDeltaCudaPlan delta;
  const float* inv_freq = nullptr;  // [pairs], on the card
  int64_t narrow_stride = 0;        // elements of a row of a or of b
  int64_t logits_stride = 0;        // of a column of the whole vocabulary
  int64_t local_logits_stride = 0;
  int64_t n_workspace_bytes = 0;  // of the buffers

  // Pages of one layer: what kernels see of them.
  KvView kv_layer(int layer, int slot) const;
  int64_t kv_layer_bytes() const;

 private:
  void book_buffers(ArenaPlan& plan, const CardUpload& upload);
  void book_states(ArenaPlan& plan);
  template <typename T>
  void book(ArenaPlan& plan, const char* name, int64_t n_values, T*& target);

  struct Place {
    int block;
    std::function<void(std::byte*)> set;
  };
  std::vector<Place> places_;
  std::unique_ptr<Arena> arena_;
  std::byte* kv_ = nullptr;
};

}  // namespace lockstep
