// What a rank serves, under which name, and the digests that say what it is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct ServedModel {
  std::string id;       // in answers and /v1/models
  bool strict = false;  // requests must name it
  int rank = 0;
  int n_ranks = 1;
  int64_t max_context = 0;
  int n_slots = 1;
  int64_t created_unix_s = 0;              // when the ranks started
  std::string build_digest;                // of the program's file
  std::string checkpoint_digest;           // of the whole checkpoint, or its fingerprint
  std::vector<std::string> shard_digests;  // one a rank
  std::string transport;                   // between the ranks' cards; empty: they have none

  // Short: "lockstep-" and digits of build and checkpoint.
  std::string fingerprint() const {
    return "lockstep-" + build_digest.substr(0, 8) + "-" + checkpoint_digest.substr(0, 8);
  }
};

}  // namespace lockstep
