// How a rank runs: what is fixed at its start.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/comm/device_communicator.h"
#include "engine/device/device.h"
#include "engine/ops/attention/kv_view.h"

namespace lockstep {

enum class Precision : uint8_t { fp32, bf16 };

struct EngineOptions {
  Precision precision = Precision::bf16;
  KvType kv_type = KvType::bf16;
  bool rotate_keys = true;     // Hadamard rotation of q and k with kv_type int8
  int64_t prefill_grid = 512;  // positions; a multiple of kGdnChunk
  int64_t max_context = 0;     // positions per slot; 0: what the model allows
  int n_slots = 1;
  int n_drafts = 0;                       // k of speculation
  int64_t draft_window = 0;               // positions that a draft sees at least; 0: all
  std::vector<int32_t> draft_vocab = {};  // drafts come from these tokens (ascending); empty: all
  int64_t n_live_tokens = 0;              // vocabulary rows that exist; 0: all
  int64_t prefix_cache_bytes = 0;         // budget of snapshot states; 0: off
  bool cuda_graphs = true;                // decode rounds of a card as graphs: no bits change
  bool time_ops = false;                  // on a card; slows its rounds
  Device* device = nullptr;               // the card that runs the passes; null: the CPU

  DeviceCommunicator* transport = nullptr;  // joins the ranks' cards; null: through the host
};

}  // namespace lockstep
