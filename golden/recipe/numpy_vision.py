"""Records an oracle for image prompts of a qwen3_5 checkpoint with numpy alone.

Usage: numpy_vision.py --model DIR --prompts ORACLE.json --out PREFIX [--n-tokens N]

A second opinion beside golden/oracle: other pictures, other prompts, another implementation, written
from the model's definition. It draws PREFIX-NAME.png, needs no resize, runs the tower in float64 and
the text model in float32 (numpy_forward.py), and drafts with the MTP layer. The text of a prompt comes
from the token ids of ORACLE.json.
"""
import argparse
import json
import math
import struct
import zlib

import numpy as np

import numpy_forward as text_model
from numpy_forward import F32, record_prompt, rms_norm, silu, write_safetensors

N_DRAFTS = 3

# Sizes of the pictures, and the oracle's prompt whose question follows them. Grids of other sides
# than the position table's, one patch block high, more than one picture, text before and between.
PROMPTS = [
    {"name": "upright", "sizes": [(96, 160)], "question": "image-wide"},
    {"name": "three", "sizes": [(64, 96), (256, 32), (64, 64)], "question": "image-two"},
    {"name": "between", "sizes": [(192, 224), (96, 96)], "question": "image-tall",
     "before": "chat-code"},
]


# --- pictures ---

def draw(width, height, seed):
    """uint8 [height, width, 3]: a rectangle on a ground, with grain from 32-bit integers."""
    y, x, c = np.meshgrid(np.arange(height, dtype=np.uint64), np.arange(width, dtype=np.uint64),
                          np.arange(3, dtype=np.uint64), indexing="ij")
    mask = np.uint64(0xFFFFFFFF)
    grain = (x * np.uint64(73856093) + y * np.uint64(19349663)
             + (c + np.uint64(seed)) * np.uint64(83492791)) & mask
    grain = ((grain ^ (grain >> np.uint64(15))) * np.uint64(0x2C1B3C6D)) & mask
    inside = (x > width // 5) & (x < width * 3 // 4) & (y > height // 4) & (y < height * 5 // 6)
    ground = (np.uint64(40) * (c + np.uint64(seed))) % np.uint64(200)
    colour = (np.uint64(90) * (c + np.uint64(1)) * np.uint64(seed)) % np.uint64(230)
    value = np.where(inside, colour, ground) + (grain >> np.uint64(12)) % np.uint64(25)
    return value.astype(np.uint8)


def write_png(path, picture):
    height, width = picture.shape[:2]

    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))

    rows = b"".join(b"\0" + row.tobytes() for row in picture)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n"
                   + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
                   + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


# --- tower ---

def layer_norm(x, weight, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-6) * weight + bias


def gelu_exact(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


class Tower:
    def __init__(self, directory, weights):
        with open(directory + "/config.json", encoding="utf-8") as file:
            self.config = json.load(file)["vision_config"]
        self.weights = weights
        self.merge = self.config["spatial_merge_size"]
        self.patch = self.config["patch_size"]

    def get(self, name):
        return self.weights.floats("model.visual." + name).astype(np.float64)

    def linear(self, x, base):
        weight = self.get(base + ".weight")
        return x @ weight.reshape(len(weight), -1).T + self.get(base + ".bias")

    def norm(self, x, base):
        return layer_norm(x, self.get(base + ".weight"), self.get(base + ".bias"))

    def in_merge_order(self, grid):
        """[rows, columns, ...] to [patches, ...]: block rows, block columns, inside a block."""
        rows, columns, *rest = grid.shape
        m = self.merge
        blocks = grid.reshape(rows // m, m, columns // m, m, *rest)
        return blocks.swapaxes(1, 2).reshape(rows * columns, *rest)

    def patches(self, picture):
        """[patches, channel * time * y * x]; one picture fills both time steps."""
        p = self.patch
        rows, columns = picture.shape[0] // p, picture.shape[1] // p
        values = (picture.astype(np.float64) - 127.5) / 127.5
        grid = values.reshape(rows, p, columns, p, 3).transpose(0, 2, 4, 1, 3)
        grid = np.repeat(grid[:, :, :, None], self.config["temporal_patch_size"], axis=3)
        return self.in_merge_order(grid).reshape(rows * columns, -1), (rows, columns)

    def position_rows(self, rows, columns):
        """The square table read bilinearly, corners on corners."""
        table = self.get("pos_embed.weight")
        side = math.isqrt(len(table))
        table = table.reshape(side, side, -1)

        def along(values, n):  # the first axis at n evenly spaced places
            places = np.linspace(0, side - 1, n)
            low = np.minimum(places.astype(int), side - 2)
            share = (places - low).reshape(-1, *[1] * (values.ndim - 1))
            return values[low] * (1 - share) + values[low + 1] * share

        grid = along(along(table, rows).swapaxes(0, 1), columns).swapaxes(0, 1)
        return self.in_merge_order(grid)

    def rotate(self, x, angle):
        half = x.shape[-1] // 2
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def angles(self, rows, columns):
        """[patches, half a head]: the rows' angles, then the columns'."""
        n_each = self.config["hidden_size"] // self.config["num_heads"] // 4
        places = self.in_merge_order(np.stack(np.mgrid[:rows, :columns], axis=-1))
        inverse = 10000.0 ** (-np.arange(n_each) / n_each)
        return (places[:, :, None] * inverse).reshape(rows * columns, -1)

    def embed(self, picture):
        patches, (rows, columns) = self.patches(picture)
        x = self.linear(patches, "patch_embed.proj") + self.position_rows(rows, columns)
        n, heads = len(x), self.config["num_heads"]
        dim = self.config["hidden_size"] // heads
        angle = self.angles(rows, columns)
        for b in range(self.config["depth"]):
            base = f"blocks.{b}."
            qkv = self.linear(self.norm(x, base + "norm1"), base + "attn.qkv")
            q, k, v = qkv.reshape(n, 3, heads, dim).swapaxes(0, 1)
            q, k = self.rotate(q, angle), self.rotate(k, angle)
            weights = softmax(np.einsum("thd,shd->hts", q, k) * dim**-0.5)
            out = np.einsum("hts,shd->thd", weights, v).reshape(n, -1)
            x = x + self.linear(out, base + "attn.proj")
            wide = gelu_tanh(self.linear(self.norm(x, base + "norm2"), base + "mlp.linear_fc1"))
            x = x + self.linear(wide, base + "mlp.linear_fc2")
        merged = self.norm(x, "merger.norm").reshape(n // self.merge**2, -1)
        wide = gelu_exact(self.linear(merged, "merger.linear_fc1"))
        return self.linear(wide, "merger.linear_fc2").astype(F32), patches, (rows, columns)


# --- prompts ---

def prompt_ids(recipe, grids, ids_of, config, merge):
    """Text, then each picture's pads between its start and its end, then the question."""
    start, end = config["vision_start_token_id"], config["vision_end_token_id"]
    question = ids_of[recipe["question"]]
    first = question.index(start)
    last = len(question) - question[::-1].index(end)
    before = ids_of[recipe["before"]][:9] if "before" in recipe else []
    ids = question[:first] + before
    for i, (rows, columns) in enumerate(grids):
        if i > 0:
            ids = ids + before[:3]
        ids = ids + [start] + [config["image_token_id"]] * (rows * columns // merge**2) + [end]
    return ids + question[last:]


def image_positions(ids, grids, pad, merge):
    """[3, T]: text advances all axes; a picture holds the time and spreads rows and columns."""
    columns, place, i, grids = [], 0, 0, list(grids)
    while i < len(ids):
        if ids[i] != pad:
            columns.append((place, place, place))
            place, i = place + 1, i + 1
            continue
        height, width = (side // merge for side in grids.pop(0))
        columns += [(place, place + y, place + x) for y in range(height) for x in range(width)]
        place, i = place + max(height, width), i + height * width
    return np.array(columns).T


class Drafter:
    """The MTP layer: slot i sees token i + 1 and the state after the final norm of token i."""

    def __init__(self, model):
        weights = model.weights
        self.model = model
        self.norms = {name: model.norm_weight(f"mtp.{name}.weight") for name in
                      ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")}
        self.fc = weights.matrix("mtp.fc")
        base = "mtp.layers.0."
        self.layer = {"in": model.norm_weight(base + "input_layernorm.weight"),
                      "post": model.norm_weight(base + "post_attention_layernorm.weight")}
        for name in "qkvo":
            self.layer[name] = weights.matrix(f"{base}self_attn.{name}_proj")
        for name in ("q_norm", "k_norm"):
            self.layer[name] = model.norm_weight(f"{base}self_attn.{name}.weight")
        for name in ("gate", "up", "down"):
            self.layer[name] = weights.matrix(f"{base}mlp.{name}_proj")

    def run(self, embedded, hidden, state, positions):
        model, w = self.model, self.layer
        x = np.concatenate([
            rms_norm(embedded, self.norms["pre_fc_norm_embedding"], model.eps),
            rms_norm(hidden, self.norms["pre_fc_norm_hidden"], model.eps)], axis=-1) @ self.fc.T
        x = x + model.attention(w, rms_norm(x, w["in"], model.eps), state, positions)
        h = rms_norm(x, w["post"], model.eps)
        x = x + (silu(h @ w["gate"].T) * (h @ w["up"].T)) @ w["down"].T
        return rms_norm(x, self.norms["norm"], model.eps)

    def drafts(self, embedded, hidden, positions, n_prompt, n_steps):
        """N_DRAFTS tokens behind each generated token but the last."""
        state, result = {"k": [], "v": []}, []
        done = 0
        for step in range(n_steps):
            end = n_prompt + step  # slots that know their next token
            out = self.run(embedded[done + 1:end + 1], hidden[done:end], state,
                           positions[:, done:end])
            done = end
            ahead = {name: list(parts) for name, parts in state.items()}
            row, last = [], out[-1:]
            for k in range(N_DRAFTS):
                row.append(int((last @ self.model.head.T).argmax()))
                if k + 1 < N_DRAFTS:
                    last = self.run(self.model.embed[[row[-1]]], last, ahead,
                                    positions[:, end + k:end + k + 1])
            result.append(row)
        return result


def record(model, tower, drafter, config, recipe, ids_of, arguments, seed):
    name, merge = recipe["name"], tower.merge
    pictures = [draw(w, h, seed + i) for i, (w, h) in enumerate(recipe["sizes"])]
    for i, picture in enumerate(pictures):
        number = "" if len(pictures) == 1 else f"-{i}"
        write_png(f"{arguments.out}-{name}{number}.png", picture)
    seen = [tower.embed(picture) for picture in pictures]
    grids = [grid for _, _, grid in seen]
    vision = np.concatenate([rows for rows, _, _ in seen])
    ids = prompt_ids(recipe, grids, ids_of, config, merge)
    pad = config["image_token_id"]
    pads = [i for i, token in enumerate(ids) if token == pad]
    embedded = model.embed[ids].copy()
    embedded[pads] = vision
    positions = image_positions(ids, grids, pad, merge)
    entry, tensors, every = record_prompt(model, name, ids, embedded, positions, arguments.n_tokens,
                                          arguments.tail)
    delta = int(positions.max()) + 1 - len(ids)
    later = text_model.text_positions(len(ids) + delta, arguments.n_tokens + N_DRAFTS)
    entry["mtp_drafts"] = drafter.drafts(
        np.concatenate([embedded, model.embed[entry["greedy"]]]), every["final_norm"],
        np.concatenate([positions, later], axis=1), len(ids), arguments.n_tokens - 1)
    rows = sorted(set(pads[:3] + pads[-3:] + [pads[-1] + 1, pads[-1] + 2]))
    entry.update(images=[{"w": w, "h": h} for w, h in recipe["sizes"]], rope_delta=delta,
                 grids=[[1, *grid] for grid in grids], image_rows=rows)
    for tap, value in every.items():
        if tap == "embed" or tap.endswith(".out"):
            tensors[f"{name}/image/{tap}"] = value[rows]
    tensors[f"{name}/vision_embeds"] = vision
    tensors[f"{name}/pixel_values"] = np.concatenate([p for _, p, _ in seen]).astype(np.float16)
    return entry, tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompts", required=True, help="an oracle's JSON that lends its text")
    parser.add_argument("--n-tokens", type=int, default=96)
    parser.add_argument("--tail", type=int, default=8)
    parser.add_argument("--out", required=True, help="path without .json / .safetensors")
    arguments = parser.parse_args()
    with open(arguments.prompts, encoding="utf-8") as file:
        ids_of = {prompt["name"]: prompt["ids"] for prompt in json.load(file)["prompts"]}
    with open(arguments.model + "/config.json", encoding="utf-8") as file:
        config = json.load(file)
    model = text_model.Model(arguments.model)
    tower = Tower(arguments.model, model.weights)
    drafter = Drafter(model)
    entries, tensors = [], {}
    for number, recipe in enumerate(PROMPTS):
        entry, taps = record(model, tower, drafter, config, recipe, ids_of, arguments,
                             10 * number + 3)
        entries.append(entry)
        tensors.update(taps)
    with open(arguments.out + ".json", "w", encoding="utf-8") as file:
        json.dump({"tail": arguments.tail, "prompts": entries}, file)
    write_safetensors(arguments.out + ".safetensors", tensors)


if __name__ == "__main__":
    main()
