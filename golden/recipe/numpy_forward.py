"""Records an oracle for a qwen3_5 checkpoint of any weight format, in float32 with numpy alone.

Usage: numpy_forward.py --model DIR --prompts ORACLE.json --names a,b --n-tokens N --out PREFIX

It shares nothing with the engine: the decoders and the forward pass are written from the
definitions of the formats and of the model (text part, greedy). PREFIX.json and PREFIX.safetensors
have the form of golden/oracle, so that `lockstep compare --oracle PREFIX` judges the engine.
"""
import argparse
import json
import os
import struct

import numpy as np

F32 = np.float32
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], F32)
DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F8_E4M3": "u1", "U8": "u1",
          "I32": "<u4", "I64": "<i8"}
AWQ_COLUMNS = [0, 2, 4, 6, 1, 3, 5, 7]


def e4m3_table():
    values = []
    for code in range(256):
        exponent, mantissa = (code >> 3) & 15, code & 7
        value = mantissa * 2.0**-9 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
        values.append(-value if code & 0x80 else value)
    return np.array(values, F32)


E4M3 = e4m3_table()


# --- checkpoint ---

def read_safetensors(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        array = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = (entry["dtype"], array)
    return tensors


def as_float(dtype, array):
    if dtype == "BF16":
        return (array.astype(np.uint32) << 16).view(F32)
    if dtype == "F8_E4M3":
        return E4M3[array]
    return array.astype(F32)


def nibbles(words):
    """[..., n] 32-bit words to [..., 8 n] nibbles, the lowest first."""
    parts = [(words >> (4 * j)) & 15 for j in range(8)]
    return np.stack(parts, axis=-1).reshape(*words.shape[:-1], -1).astype(F32)


class Weights:
    def __init__(self, directory):
        self.tensors = {}
        for name in sorted(os.listdir(directory)):
            if name.endswith(".safetensors"):
                self.tensors.update(read_safetensors(os.path.join(directory, name)))

    def has(self, name):
        return name in self.tensors

    def raw(self, name):
        return self.tensors[name][1]

    def floats(self, name):
        return as_float(*self.tensors[name])

    def matrix(self, base):
        """W [N, K] in float32 from whatever tensors BASE has."""
        if self.has(base + ".qweight"):
            return self.gptq(base) if self.has(base + ".g_idx") else self.awq(base)
        if self.has(base + ".weight_packed"):
            return self.packed(base)
        weight = self.floats(base + ".weight")
        if self.has(base + ".weight_scale_2"):
            return self.nvfp4(self.raw(base + ".weight"), self.floats(base + ".weight_scale"),
                              self.floats(base + ".weight_scale_2"))
        if self.has(base + ".weight_scale_inv"):
            scale = self.floats(base + ".weight_scale_inv")
            scale = scale.repeat(128, 0).repeat(128, 1)
            return weight * scale[:weight.shape[0], :weight.shape[1]]
        if self.has(base + ".weight_scale"):
            return weight * self.floats(base + ".weight_scale")
        return weight

    @staticmethod
    def nvfp4(packed, scale, multiplier):
        codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1)
        return E2M1[codes] * scale.repeat(16, 1) * multiplier

    def packed(self, base):
        scale = self.floats(base + ".weight_scale")
        if self.tensors[base + ".weight_packed"][0] == "U8":
            multiplier = F32(1) / self.floats(base + ".weight_global_scale")
            return self.nvfp4(self.raw(base + ".weight_packed"), scale, multiplier)
        codes = nibbles(self.raw(base + ".weight_packed"))
        zero = F32(8)
        group = codes.shape[1] // scale.shape[1]
        if self.has(base + ".weight_zero_point"):
            zero = nibbles(self.raw(base + ".weight_zero_point").T).T[:codes.shape[0]]
            zero = zero.repeat(group, 1)
        return (codes - zero) * scale.repeat(group, 1)

    def gptq(self, base):
        codes = nibbles(self.raw(base + ".qweight").T)
        zero = nibbles(self.raw(base + ".qzeros")).T + 1
        group = self.raw(base + ".g_idx").astype(int)
        return (codes - zero[:, group]) * self.floats(base + ".scales").T[:, group]

    def awq(self, base):
        def rows(words):
            lines = nibbles(words).reshape(*words.shape, 8)
            out = np.empty_like(lines)
            for nibble, column in enumerate(AWQ_COLUMNS):
                out[..., column] = lines[..., nibble]
            return out.reshape(words.shape[0], -1).T
        scale = self.floats(base + ".scales").T
        codes = rows(self.raw(base + ".qweight"))
        group = codes.shape[1] // scale.shape[1]
        zero = rows(self.raw(base + ".qzeros")).repeat(group, 1)
        return (codes - zero) * scale.repeat(group, 1)


# --- model ---

def sigmoid(x):
    return F32(1) / (F32(1) + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True, dtype=F32) + F32(eps)) * weight


class Model:
    def __init__(self, directory):
        with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.text = config.get("text_config", config)
        self.weights = Weights(directory)
        self.prefix = "model.language_model."
        interval = self.text["full_attention_interval"]
        self.n_layers = self.text["num_hidden_layers"]
        self.full = [(i + 1) % interval == 0 for i in range(self.n_layers)]
        self.eps = self.text["rms_norm_eps"]
        self.layers = [self.load_layer(i) for i in range(self.n_layers)]
        self.embed = self.weights.matrix(self.prefix + "embed_tokens")
        self.final = self.norm_weight(self.prefix + "norm.weight")
        self.head = self.weights.matrix("lm_head")
        rope = self.text["rope_parameters"]
        n_rotated = int(self.text["head_dim"] * rope["partial_rotary_factor"])
        exponents = np.arange(0, n_rotated, 2, dtype=np.float64) / n_rotated
        self.inverse = (1.0 / rope["rope_theta"] ** exponents).astype(F32)

    def norm_weight(self, name):
        return F32(1) + self.weights.floats(name)

    def load_layer(self, index):
        base = f"{self.prefix}layers.{index}."
        w = {"in": self.norm_weight(base + "input_layernorm.weight"),
             "post": self.norm_weight(base + "post_attention_layernorm.weight")}
        for name in ("gate", "up", "down"):
            w[name] = self.weights.matrix(f"{base}mlp.{name}_proj")
        if self.full[index]:
            for name in "qkvo":
                w[name] = self.weights.matrix(f"{base}self_attn.{name}_proj")
            for name in ("q_norm", "k_norm"):
                w[name] = self.norm_weight(f"{base}self_attn.{name}.weight")
        else:
            for name in ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj"):
                w[name] = self.weights.matrix(f"{base}linear_attn.{name}")
            for name in ("conv1d.weight", "A_log", "dt_bias", "norm.weight"):
                w[name] = self.weights.floats(f"{base}linear_attn.{name}")
        return w

    def fresh_state(self):
        t = self.text
        channels = (2 * t["linear_num_key_heads"] * t["linear_key_head_dim"] +
                    t["linear_num_value_heads"] * t["linear_value_head_dim"])
        recurrent = (t["linear_num_value_heads"], t["linear_key_head_dim"],
                     t["linear_value_head_dim"])
        return [{"k": [], "v": []} if full else
                {"conv": np.zeros((3, channels), F32), "s": np.zeros(recurrent, F32)}
                for full in self.full]

    def rotate(self, x, positions):
        """x [T, heads, dim]: pairs (i, i + half) of the first 2 * half dimensions. positions
        [3, T] (time, row, column): pair i turns by axis i mod 3."""
        half = len(self.inverse)
        angle = positions[np.arange(half) % 3].T.astype(F32) * self.inverse
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., :half], x[..., half:2 * half]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half:]], axis=-1)

    def attention(self, w, h, state, positions):
        t, dim = self.text, self.text["head_dim"]
        n_tokens = len(h)
        n_heads, n_kv = t["num_attention_heads"], t["num_key_value_heads"]
        both = (h @ w["q"].T).reshape(n_tokens, n_heads, 2 * dim)
        q, gate = both[..., :dim], both[..., dim:]
        k = (h @ w["k"].T).reshape(n_tokens, n_kv, dim)
        v = (h @ w["v"].T).reshape(n_tokens, n_kv, dim)
        q = self.rotate(rms_norm(q, w["q_norm"], self.eps), positions)
        k = self.rotate(rms_norm(k, w["k_norm"], self.eps), positions)
        state["k"].append(k)
        state["v"].append(v)
        keys = np.concatenate(state["k"]).repeat(n_heads // n_kv, axis=1)
        values = np.concatenate(state["v"]).repeat(n_heads // n_kv, axis=1)
        scores = np.einsum("thd,shd->hts", q, keys) * F32(dim**-0.5)
        places = np.arange(len(keys))
        later = places[None, :] > places[-n_tokens:, None]
        scores = np.where(later[None], F32(-np.inf), scores)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        out = np.einsum("hts,shd->thd", scores, values) * sigmoid(gate)
        return out.reshape(n_tokens, -1) @ w["o"].T

    def gated_delta(self, w, h, state):
        t = self.text
        n_k, n_v = t["linear_num_key_heads"], t["linear_num_value_heads"]
        d_k, d_v = t["linear_key_head_dim"], t["linear_value_head_dim"]
        n_tokens = len(h)
        mixed = np.concatenate([state["conv"], h @ w["in_proj_qkv"].T])
        taps = w["conv1d.weight"][:, 0]
        conv = silu(sum(mixed[j:j + n_tokens] * taps[:, j] for j in range(4)))
        state["conv"] = mixed[-3:]
        q = conv[:, :n_k * d_k].reshape(n_tokens, n_k, d_k).repeat(n_v // n_k, axis=1)
        k = conv[:, n_k * d_k:2 * n_k * d_k].reshape(n_tokens, n_k, d_k).repeat(n_v // n_k, axis=1)
        v = conv[:, 2 * n_k * d_k:].reshape(n_tokens, n_v, d_v)
        unit = lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True) + F32(1e-6))
        q, k = unit(q) * F32(d_k**-0.5), unit(k)
        beta = sigmoid(h @ w["in_proj_b"].T)
        rate = np.logaddexp(F32(0), h @ w["in_proj_a"].T + w["dt_bias"])  # softplus
        decay = np.exp(-np.exp(w["A_log"]) * rate)
        s, out = state["s"], np.empty((n_tokens, n_v, d_v), F32)
        for i in range(n_tokens):
            s = s * decay[i][:, None, None]
            update = beta[i][:, None] * (v[i] - np.einsum("hkv,hk->hv", s, k[i]))
            s = s + k[i][:, :, None] * update[:, None, :]
            out[i] = np.einsum("hkv,hk->hv", s, q[i])
        state["s"] = s
        z = (h @ w["in_proj_z"].T).reshape(n_tokens, n_v, d_v)
        out = rms_norm(out, w["norm.weight"], 1e-6) * silu(z)
        return out.reshape(n_tokens, -1) @ w["out_proj"].T

    def forward(self, x, states, positions, taps):
        """x [T, hidden]: embedded tokens at positions [3, T]; the logits behind the last one."""
        taps["embed"] = x
        for i, w in enumerate(self.layers):
            h = rms_norm(x, w["in"], self.eps)
            if self.full[i]:
                mixer = self.attention(w, h, states[i], positions)
            else:
                mixer = self.gated_delta(w, h, states[i])
            x = x + mixer
            h = rms_norm(x, w["post"], self.eps)
            mlp = (silu(h @ w["gate"].T) * (h @ w["up"].T)) @ w["down"].T
            x = x + mlp
            taps[f"layers.{i}.mixer"] = mixer
            taps[f"layers.{i}.mlp"] = mlp
            taps[f"layers.{i}.out"] = x
        taps["final_norm"] = rms_norm(x, self.final, self.eps)
        return taps["final_norm"][-1] @ self.head.T


# --- oracle ---

def text_positions(start, n_tokens):
    """All three axes advance together."""
    return np.broadcast_to(np.arange(start, start + n_tokens), (3, n_tokens))


def record_greedy(model, logits, states, n_tokens, first, entry, visit):
    """Appends n_tokens greedy tokens to `entry`; visit(step, taps) sees the step that feeds each.
    `first` is the position of the first of them."""
    for step in range(n_tokens):
        order = np.argsort(-logits, kind="stable")
        best, second = int(order[0]), int(order[1])
        wide = logits.astype(np.float64)
        largest = wide.max()
        entry["greedy"].append(best)
        entry["second"].append(second)
        entry["margin"].append(float(wide[best] - wide[second]))
        log_sum = largest + np.log(np.exp(wide - largest).sum())
        entry["logprob"].append(float(wide[best] - log_sum))
        taps = {}
        logits = model.forward(model.embed[[best]], states, text_positions(first + step, 1), taps)
        visit(step, taps)


def record_prompt(model, name, ids, embedded, positions, n_tokens, tail):
    """(entry, tensors, states' taps of every position) of one prompt and its greedy tokens."""
    states, taps, steps = model.fresh_state(), {}, []
    logits = model.forward(embedded, states, positions, taps)
    entry = {"name": name, "image": None, "images": None, "ids": ids,
             "greedy": [], "margin": [], "second": [], "logprob": []}
    record_greedy(model, logits, states, n_tokens, int(positions.max()) + 1, entry,
                  lambda step, step_taps: steps.append(step_taps))
    every = {tap: np.concatenate([value] + [step[tap] for step in steps])
             for tap, value in taps.items()}
    tensors = {}
    for tap, value in taps.items():
        tensors[f"{name}/{tap}"] = value[-tail:]
        if tap == "final_norm" or tap.endswith(".out"):
            tensors[f"{name}/decode/{tap}"] = every[tap][len(ids):len(ids) + tail]
    return entry, tensors, every


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, value in tensors.items():
        dtype = {"float32": "F32", "float16": "F16"}[value.dtype.name]
        header[name] = {"dtype": dtype, "shape": list(value.shape),
                        "data_offsets": [offset, offset + value.nbytes]}
        offset += value.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for value in tensors.values():
            file.write(np.ascontiguousarray(value).tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompts", required=True, help="an oracle's JSON whose prompts are taken")
    parser.add_argument("--names", required=True, help="comma-separated")
    parser.add_argument("--n-tokens", type=int, default=32)
    parser.add_argument("--tail", type=int, default=8)
    parser.add_argument("--out", required=True, help="path without .json / .safetensors")
    arguments = parser.parse_args()
    with open(arguments.prompts, encoding="utf-8") as file:
        prompts = {prompt["name"]: prompt for prompt in json.load(file)["prompts"]}
    model = Model(arguments.model)
    entries, tensors = [], {}
    for name in arguments.names.split(","):
        ids = prompts[name]["ids"]
        entry, taps, _ = record_prompt(model, name, ids, model.embed[ids],
                                       text_positions(0, len(ids)), arguments.n_tokens,
                                       arguments.tail)
        entries.append(entry)
        tensors.update(taps)
    with open(arguments.out + ".json", "w", encoding="utf-8") as file:
        json.dump({"tail": arguments.tail, "prompts": entries}, file)
    write_safetensors(arguments.out + ".safetensors", tensors)


if __name__ == "__main__":
    main()
