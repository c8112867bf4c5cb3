"""Plants one converter's mistake in a copy of a float32 GGUF file of this family (tests only).

Usage: plant_gguf.py FROM.gguf TO.gguf MISTAKE, one of MISTAKES below.
"""
import struct
import sys

import numpy as np

F32 = 0
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q",
           11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9


class Gguf:
    """Header values and float32 tensors, editable in place; nothing moves."""

    def __init__(self, data):
        self.data, self.at = bytearray(data), 4
        assert data[:4] == b"GGUF" and self.scalar("<I") == 3
        n_tensors, n_keys = self.scalar("<Q"), self.scalar("<Q")
        self.keys = {}
        for _ in range(n_keys):
            name = self.string()
            self.keys[name] = self.value(self.scalar("<I"))
        infos = []
        for _ in range(n_tensors):
            name = self.string()
            shape = [self.scalar("<Q") for _ in range(self.scalar("<I"))]
            kind, offset = self.scalar("<I"), self.scalar("<Q")
            infos.append((name, shape, kind, offset))
        start = (self.at + 31) // 32 * 32
        self.tensors = {}
        for name, shape, kind, offset in infos:
            if kind != F32:
                continue
            n = int(np.prod(shape))
            array = np.frombuffer(self.data, "<f4", n, start + offset)
            self.tensors[name] = array.reshape(shape[::-1])

    def scalar(self, form):
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def string(self):
        n = self.scalar("<Q")
        text = bytes(self.data[self.at:self.at + n]).decode()
        self.at += n
        return text

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            inner, n = self.scalar("<I"), self.scalar("<Q")
            return [self.value(inner) for _ in range(n)]
        return self.scalar(SCALARS[kind])

    def key(self, name):
        return self.keys["qwen35." + name]


def rows_in_source_order(gguf, array, axis):
    """Tiled V heads (place r * K + k holds head k * R + r) put back in the checkpoint's order."""
    n_k, n_v = gguf.key("ssm.group_count"), gguf.key("ssm.time_step_rank")
    ratio = n_v // n_k
    heads = np.split(array, n_v, axis=axis)
    return np.concatenate([heads[(h % ratio) * n_k + h // ratio] for h in range(n_v)], axis=axis)


def v_heads_not_tiled(gguf):
    n_k, state = gguf.key("ssm.group_count"), gguf.key("ssm.state_size")
    first = 2 * n_k * state  # V rows behind those of Q and K
    for name, t in gguf.tensors.items():
        part = name.split(".", 2)[-1]
        if part == "attn_qkv.weight" or part.startswith("ssm_conv1d"):
            t[first:] = rows_in_source_order(gguf, t[first:].copy(), 0)
        elif part == "ssm_out.weight":
            t[:] = rows_in_source_order(gguf, t.copy(), 1)
        elif part in ("attn_gate.weight", "ssm_alpha.weight", "ssm_beta.weight", "ssm_a",
                      "ssm_dt.bias"):
            t[:] = rows_in_source_order(gguf, t.copy(), 0)


def norm_without_one(gguf):
    gguf.tensors["blk.2.post_attention_norm.weight"][:] -= 1


def q_and_gate_swapped(gguf):
    head = gguf.key("attention.key_length")
    for name, t in gguf.tensors.items():
        if name.endswith("attn_q.weight"):
            pairs = t.reshape(-1, 2, head, t.shape[-1])
            pairs[:] = pairs[:, ::-1].copy()


def a_log_kept(gguf):
    for name, t in gguf.tensors.items():
        if name.endswith("ssm_a"):
            t[:] = np.log(-t)


def layer_from_another(gguf):
    gguf.tensors["blk.5.ffn_down.weight"][:] = gguf.tensors["blk.4.ffn_down.weight"]


MISTAKES = {"v-heads-not-tiled": v_heads_not_tiled, "norm-without-one": norm_without_one,
            "q-and-gate-swapped": q_and_gate_swapped, "a-log-kept": a_log_kept,
            "layer-from-another": layer_from_another}


def main():
    source, target, mistake = sys.argv[1:]
    with open(source, "rb") as file:
        data = file.read()
    gguf = Gguf(data)
    MISTAKES[mistake](gguf)
    if bytes(gguf.data) == data:
        sys.exit(f"plant_gguf.py: {mistake} changed nothing")
    with open(target, "wb") as file:
        file.write(gguf.data)


if __name__ == "__main__":
    main()
