#!/usr/bin/env python3
"""Times PyTorch's linear layers on the matrices of `lockstep bench ops --ops linear`: bfloat16, and
FP8 with one scale a matrix (torch._scaled_mm, bfloat16 out) where the card has it. As there,
launches are one CUDA graph over copies of the weights that together exceed the second-level cache.
Needs PyTorch and a card."""

import argparse

import torch

SHAPES = [("gate_up", 34816, 5120), ("gate_up half", 17408, 5120), ("down half-K", 5120, 8704),
          ("GDN qkvz", 16384, 5120), ("GDN qkvz half", 8192, 5120), ("attn qkv", 14336, 5120),
          ("attn qkv half", 7168, 5120), ("out half-K", 5120, 3072),
          ("lm_head half", 124160, 5120)]


def seconds(calls, replays=7):
    """Median seconds of one call, all of them recorded as one graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    samples = []
    for _ in range(replays):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1e-3 / len(calls))
    return sorted(samples)[replays // 2]


def bf16_calls(n_rows, n_cols, n_tokens, n_copies):
    x = torch.randn(n_tokens, n_cols, device="cuda", dtype=torch.bfloat16)
    weights = [torch.randn(n_rows, n_cols, device="cuda", dtype=torch.bfloat16)
               for _ in range(n_copies)]
    return [lambda w=w: torch.nn.functional.linear(x, w) for w in weights], 2


def fp8_calls(n_rows, n_cols, n_tokens, n_copies):
    one = torch.ones((), device="cuda")
    n = (n_tokens + 15) // 16 * 16  # what the library takes
    x = torch.randn(n, n_cols, device="cuda").to(torch.float8_e4m3fn)
    weights = [torch.randn(n_rows, n_cols, device="cuda").to(torch.float8_e4m3fn)
               for _ in range(n_copies)]
    return [lambda w=w: torch._scaled_mm(x, w.t(), scale_a=one, scale_b=one,
                                         out_dtype=torch.bfloat16) for w in weights], 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="*", default=[1, 2, 4, 8, 16, 64, 512, 2048])
    parser.add_argument("--types", nargs="*", default=["bf16", "fp8"])
    args = parser.parse_args()
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    for name, n_rows, n_cols in SHAPES:
        for kind in args.types:
            make = bf16_calls if kind == "bf16" else fp8_calls
            for n_tokens in args.tokens:
                n_bytes = n_rows * n_cols * (2 if kind == "bf16" else 1)
                n_copies = max(2, min(64, 6 * cache // n_bytes + 1))
                calls, width = make(n_rows, n_cols, n_tokens, n_copies)
                time = seconds(calls if n_tokens > 64 else (calls * 16)[:max(16, len(calls))])
                gb = n_rows * n_cols * width * 1e-9
                tflop = 2e-12 * n_rows * n_cols * n_tokens
                print(f"PyTorch {kind}, {name}, T {n_tokens}: {time * 1e6:.1f} us, "
                      f"{gb / time:.0f} GB/s, {tflop / time:.1f} TFLOP/s", flush=True)


if __name__ == "__main__":
    main()
