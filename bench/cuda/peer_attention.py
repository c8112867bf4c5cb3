#!/usr/bin/env python3
"""Times PyTorch's scaled_dot_product_attention on the shapes of
`lockstep bench ops --ops attention,prefill-attention`: 24 heads over 4 KV heads of 256 values,
bfloat16. Needs PyTorch and a card. Columns see the whole cache; a chunk that is the whole context
is causal."""

import argparse

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

HEADS, KV_HEADS, WIDTH = 24, 4, 256


def seconds(call, replays=5):
    call()
    torch.cuda.synchronize()
    samples = []
    for _ in range(replays):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1e-3)
    return sorted(samples)[replays // 2]


def random(heads, n):
    return torch.randn(1, heads, n, WIDTH, device="cuda", dtype=torch.bfloat16)


def time_case(context, n, k, v):
    q = random(HEADS, n)
    causal = n == context
    time = seconds(lambda: sdpa(q, k, v, is_causal=causal, enable_gqa=True))
    pairs = n * (n + 1) / 2 if causal else n * context
    gb = context * KV_HEADS * WIDTH * 4e-9
    tflop = pairs * HEADS * WIDTH * 4e-12
    print(f"SDPA bf16, 4 KV heads, {context}, T {n}: {time * 1e6:.1f} us, {gb / time:.0f} GB/s, "
          f"{tflop / time:.1f} TFLOP/s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contexts", type=int, nargs="*",
                        default=[8192, 32768, 131072, 186000, 262144])
    parser.add_argument("--tokens", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--chunks", type=int, nargs="*", default=[512, 2048])
    args = parser.parse_args()
    for context in args.contexts:
        k, v = random(KV_HEADS, context), random(KV_HEADS, context)
        for n in args.tokens + [c for c in args.chunks if context <= 32768]:
            time_case(context, n, k, v)


if __name__ == "__main__":
    main()
