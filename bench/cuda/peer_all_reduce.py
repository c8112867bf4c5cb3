#!/usr/bin/env python3
"""Times PyTorch's all-reduces of bfloat16 between two cards, by size: NCCL, and the one-shot and
two-shot kernels of symmetric memory, each as a CUDA graph of 20 of them, as `lockstep bench
transports` does. With --bench PROGRAM that one runs first, in the same run. Needs PyTorch and two
cards. Multicast stays off."""

import argparse
import os
import subprocess

os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import torch.multiprocessing as mp

IN_GRAPH, REPLAYS = 20, 7


def microseconds(call):
    """Median over replays of a graph of IN_GRAPH calls."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
        torch.cuda.synchronize()
        dist.barrier()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for _ in range(IN_GRAPH):
                call()
        samples = []
        for _ in range(REPLAYS + 1):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            samples.append(start.elapsed_time(end) * 1e3 / IN_GRAPH)
    return sorted(samples[1:])[REPLAYS // 2]


def rank_main(rank, sizes, port):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    group = dist.group.WORLD.group_name
    shared = symm_mem.empty(max(sizes) // 2, dtype=torch.bfloat16, device=f"cuda:{rank}")
    symm_mem.rendezvous(shared, group)
    shared.zero_()
    own = torch.zeros_like(shared)
    for size in sizes:
        part, mine = shared[: size // 2], own[: size // 2]
        times = {"NCCL": microseconds(lambda: dist.all_reduce(mine))}
        ops = torch.ops.symm_mem
        times["one-shot"] = microseconds(lambda: ops.one_shot_all_reduce(part, "sum", group))
        if size % 32 == 0:
            times["two-shot"] = microseconds(lambda: ops.two_shot_all_reduce_(part, "sum", group))
        if rank == 0:
            shown = ", ".join(f"{name} {time:.2f} us" for name, time in times.items())
            print(f"PyTorch {size / 1024:.0f} KB: {shown}", flush=True)
    dist.barrier()
    os._exit(0)  # groups with captured graphs may not be destroyed in any order


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bench", help="The program lockstep-bench")
    parser.add_argument("--port", type=int, default=29511)
    parser.add_argument("--sizes", type=int, nargs="*",
                        default=[10240, 20480, 40960, 81920, 131072, 262144, 524288, 1048576])
    args = parser.parse_args()
    if args.bench:
        sizes = ",".join(map(str, args.sizes))
        subprocess.run([args.bench, "transports", "--sizes", sizes], check=True)
    mp.spawn(rank_main, args=(args.sizes, args.port), nprocs=2)


if __name__ == "__main__":
    main()
