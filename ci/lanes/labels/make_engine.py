"""Another engine of the same model, as a checkpoint (tests only): honest, or with one defect.

Usage: make_engine.py FROM TO SEED [honest | DEFECT LAYER SIZE], FROM a bf16 checkpoint.

Honest: the sums of the MLPs and of the attention's output run in another order. Their inner
dimensions are permuted, which is the same function of real numbers; in bf16, with two half sums
rounded each, it is another engine. DEFECT is one of DEFECTS, in the last product of one branch
("mlp" or "mixer" of LAYER), whose weights are off by SIZE of their length.
"""
import json
import os
import shutil
import struct
import sys

import numpy as np


def to_float(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bits(values):
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


class Checkpoint:
    """BF16 tensors of all safetensors files of a folder, writable in place."""

    def __init__(self, folder):
        self.folder, self.tensors = folder, {}
        for name in sorted(os.listdir(folder)):
            if not name.endswith(".safetensors"):
                continue
            data = np.memmap(os.path.join(folder, name), np.uint8, "r+")
            (length,) = struct.unpack("<Q", data[:8].tobytes())
            header = json.loads(data[8:8 + length].tobytes())
            for tensor, entry in header.items():
                if tensor != "__metadata__" and entry["dtype"] == "BF16":
                    begin, end = (8 + length + at for at in entry["data_offsets"])
                    self.tensors[tensor] = data[begin:end].view(np.uint16).reshape(entry["shape"])

    def find(self, end):
        (name,) = [n for n in self.tensors if n.endswith(end) and not n.startswith("mtp.")]
        return self.tensors[name]

    def has(self, end):
        return any(n.endswith(end) and not n.startswith("mtp.") for n in self.tensors)


def reorder(checkpoint, config, random):
    text = config["text_config"]
    for layer in range(text["num_hidden_layers"]):
        at = f"language_model.layers.{layer}."
        order = random.permutation(text["intermediate_size"])
        for part in ("gate_proj", "up_proj"):
            rows = checkpoint.find(f"{at}mlp.{part}.weight")
            rows[:] = rows[order].copy()
        down = checkpoint.find(f"{at}mlp.down_proj.weight")
        down[:] = down[:, order].copy()
        if not checkpoint.has(f"{at}self_attn.v_proj.weight"):
            continue
        # Within a KV head, and alike in every query head that reads it and in that head's gate.
        n_kv, n_q, dim = (text[k] for k in
                          ("num_key_value_heads", "num_attention_heads", "head_dim"))
        v = checkpoint.find(f"{at}self_attn.v_proj.weight").reshape(n_kv, dim, -1)
        gate = checkpoint.find(f"{at}self_attn.q_proj.weight").reshape(n_q, 2, dim, -1)[:, 1]
        out = checkpoint.find(f"{at}self_attn.o_proj.weight").reshape(-1, n_q, dim)
        for kv in range(n_kv):
            order = random.permutation(dim)
            v[kv] = v[kv][order].copy()
            for head in range(kv * n_q // n_kv, (kv + 1) * n_q // n_kv):
                gate[head] = gate[head][order].copy()
                out[:, head] = out[:, head][:, order].copy()


def scaled(w, size, random):
    """A scale that is wrong everywhere."""
    return w * (1 + size)


def shrunk(w, size, random):
    """A scale that is too small, or of the wrong sign."""
    return w * (1 - size)


def some_rows(w, size, random):
    """A quarter of the outputs carry all of the error."""
    rows = random.permutation(len(w))[:len(w) // 4]
    share = np.linalg.norm(w[rows]) / np.linalg.norm(w)
    w = w.copy()
    w[rows] *= 1 + size / share
    return w


def other_weights(w, size, random):
    """Another matrix is mixed in: its own, with rows in another place."""
    return w + size * np.roll(w, len(w) // 3, axis=0)


DEFECTS = {f.__name__: f for f in (scaled, shrunk, some_rows, other_weights)}


def last_product(checkpoint, branch, layer):
    at = f"language_model.layers.{layer}."
    if branch == "mlp":
        return checkpoint.find(f"{at}mlp.down_proj.weight")
    for end in ("self_attn.o_proj.weight", "linear_attn.out_proj.weight"):
        if checkpoint.has(at + end):
            return checkpoint.find(at + end)
    sys.exit(f"make_engine.py: layer {layer} has no output")


def main():
    source, target, seed, kind, *rest = sys.argv[1:]
    shutil.copytree(source, target)
    with open(os.path.join(target, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    checkpoint = Checkpoint(target)
    random = np.random.default_rng(int(seed))
    reorder(checkpoint, config, random)
    if kind == "honest":
        return
    branch, layer, size = rest
    weight = last_product(checkpoint, branch, int(layer))
    weight[:] = to_bits(DEFECTS[kind](to_float(weight), float(size), random))


if __name__ == "__main__":
    main()
