#!/usr/bin/env python3
"""Times PyTorch's scaled_dot_product_attention on the shapes of
`lockstep bench ops --ops attention,prefill-attention`: 24 heads over 4 KV heads of 256 values,
bfloat16. Needs PyTorch and a card. Columns of decode see the whole cache. A chunk of a prompt is
timed twice: seeing all positions, and with a mask up to its own position, as prefill needs it; its
rate counts the pairs that are seen. Last the rate of a large matrix product."""

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


def report(what, context, n, pairs, time):
    gb = context * KV_HEADS * WIDTH * 4e-9
    tflop = pairs * HEADS * WIDTH * 4e-12
    print(f"SDPA bf16{what}, 4 KV heads, {context}, T {n}: {time * 1e6:.1f} us, "
          f"{gb / time:.0f} GB/s, {tflop / time:.1f} TFLOP/s", flush=True)


def time_case(context, n, k, v):
    q = random(HEADS, n)
    report("", context, n, n * context, seconds(lambda: sdpa(q, k, v, enable_gqa=True)))


# The mask lets a chunk see older positions too; a chunk that is the whole context needs none.
def time_masked(context, n, k, v):
    q = random(HEADS, n)
    see = {"is_causal": True}
    if n < context:
        mask = torch.ones(n, context, dtype=torch.bool, device="cuda").tril(context - n)
        see = {"attn_mask": mask}
    time = seconds(lambda: sdpa(q, k, v, enable_gqa=True, **see))
    report(" masked", context, n, n * (context - n) + n * (n + 1) / 2, time)


def time_product(n=8192):
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    time = seconds(lambda: a @ b)
    print(f"bf16 product of {n} x {n} x {n}: {2e-12 * n ** 3 / time:.1f} TFLOP/s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contexts", type=int, nargs="*",
                        default=[8192, 32768, 131072, 186000, 262144])
    parser.add_argument("--tokens", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--chunks", type=int, nargs="*", default=[512, 2048])
    args = parser.parse_args()
    for context in args.contexts:
        k, v = random(KV_HEADS, context), random(KV_HEADS, context)
        for n in args.tokens:
            time_case(context, n, k, v)
    for context in [0] + args.contexts:
        for n in args.chunks:
            end = max(context, n)
            k, v = random(KV_HEADS, end), random(KV_HEADS, end)
            time_case(end, n, k, v)
            time_masked(end, n, k, v)
    time_product()


if __name__ == "__main__":
    main()
