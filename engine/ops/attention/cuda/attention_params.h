// What the host passes to the kernels of attention.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "engine/ops/attention/cuda/attention_segments.h"
#include "engine/ops/attention/kv_view.h"

namespace lockstep::cuda {

struct AttentionParams {
  const uint16_t* q;
  int64_t q_stride;
  int64_t q_head_stride;
  const uint16_t* gate;
  int64_t gate_stride;
  int64_t gate_head_stride;
  uint16_t* out;
  int64_t out_stride;
  const std::byte* pool;
  const uint32_t* page_table;
  const int32_t* first_position;
  float* values;      // [n_kv_heads][n_segments][n_rows][256]
  float* statistics;  // [n_kv_heads][n_segments][n_rows][2]: maximum, denominator
  float scale_log2;   // scale * log2(e)
  int64_t page_bytes;
  AttentionSegments segments;
  int n_segments;  // of the launch
  int n_tokens;
  int n_kv_heads;
  int group;  // query heads a KV head
  int n_multiprocessors;
  int most_block_rows;  // prefill, sm80
};

void launch_decode_sm70(KvType type, const AttentionParams& p, cudaStream_t stream);
void launch_decode_sm80(KvType type, const AttentionParams& p, cudaStream_t stream);
void launch_decode_sm90(KvType type, const AttentionParams& p, cudaStream_t stream);
void launch_prefill_sm70(KvType type, const AttentionParams& p, cudaStream_t stream);
void launch_prefill_sm80(KvType type, const AttentionParams& p, cudaStream_t stream);
void launch_prefill_sm90(KvType type, const AttentionParams& p, cudaStream_t stream);
void launch_attention_simple(KvType type, const AttentionParams& p, cudaStream_t stream);
void launch_attention_merge(const AttentionParams& p, cudaStream_t stream);

}  // namespace lockstep::cuda
