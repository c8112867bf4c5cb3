// The groups of start-up checks; each throws as require_exact does.
#pragma once

#include "engine/base/thread_pool.h"

namespace lockstep {

void check_linear(ThreadPool& pool);         // linear in every codec
void check_rowwise_ops(ThreadPool& pool);    // norms, gates, rotations, sums, gathers, argmax
void check_cache_ops(ThreadPool& pool);      // kv_write and attention in every cache type
void check_recurrent_ops(ThreadPool& pool);  // causal_conv and both forms of gated_delta
void check_vision_ops(ThreadPool& pool);     // what only the vision tower uses

}  // namespace lockstep
