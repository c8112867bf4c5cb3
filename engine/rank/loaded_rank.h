// Everything that one rank loads before it can run requests.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/comm/communicator.h"
#include "engine/comm/device_communicator.h"
#include "engine/device/device.h"
#include "engine/model/model_source.h"
#include "engine/rank/engine.h"
#include "engine/rank/handshake.h"
#include "engine/rank/image_reader.h"
#include "engine/rank/memory_plan.h"
#include "engine/rank/model_text.h"
#include "engine/rank/run_flags.h"
#include "engine/rank/weights.h"

namespace lockstep {

struct LoadedRank {
  // `mailbox` joins two ranks; empty with --tp 1. Before it reads the weights, the rank compares
  // itself with its peer (handshake.h), `more_facts` included. Throws Error that names what is
  // wrong.
  LoadedRank(const RunFlags& flags, int rank_index, const std::string& mailbox,
             std::vector<std::pair<std::string, std::string>> more_facts = {});

  RunFlags flags;
  int rank;
  bool may_spin;
  ThreadPool pool;
  ModelSource source;
  ModelText text;
  std::unique_ptr<Device> card;   // null: passes run on the CPU
  EngineOptions options;          // as the flags have it
  MemoryPlan plan;                // said on stderr before the weights are read
  std::string build_digest;       // of this program's file
  std::string checkpoint_digest;  // of the whole checkpoint, or its fingerprint
  std::unique_ptr<Communicator> comm;
  AgreedFacts agreed;
  std::unique_ptr<DeviceCommunicator> transport;  // between two cards; said on stderr
  RankWeights weights;
  ImageReader images;

  // With the context that all ranks have room for.
  EngineOptions engine_options() const;

 private:
  RankFacts facts(std::vector<std::pair<std::string, std::string>> more) const;
};

}  // namespace lockstep
