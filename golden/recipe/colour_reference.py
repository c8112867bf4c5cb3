"""Lets the reference framework name the colour of 100 drawn squares.

Usage: python3 colour_reference.py MODEL OUT.json     (needs numpy, Pillow, torch, safetensors,
tokenizers, transformers; MODEL is the golden checkpoint; a CPU is enough)

engine/rank/tests/colours_test.cpp draws the same squares and holds the engine's answers against these.
"""
import json
import os
import sys

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import Qwen2VLImageProcessor, Qwen3_5Config, Qwen3_5ForConditionalGeneration

COLOURS = [("red", (220, 30, 30)), ("green", (30, 160, 60)), ("blue", (40, 70, 220)),
           ("yellow", (235, 215, 40)), ("black", (15, 15, 15)), ("white", (245, 245, 245)),
           ("orange", (240, 140, 30)), ("purple", (140, 50, 170))]
SQUARES, SIDE, MAX_TOKENS = 100, 64, 4
E2M1 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6])


def mixed(value):
    """A 32-bit integer hash."""
    value &= 0xFFFFFFFF
    value = (value ^ (value >> 16)) * 0x7FEB352D & 0xFFFFFFFF
    value = (value ^ (value >> 15)) * 0x846CA68B & 0xFFFFFFFF
    return value ^ (value >> 16)


def square(index):
    """(uint8 picture, name of the square's colour): a square on a ground, with grain on both."""
    ground = mixed(5 * index) % 8
    colour = (ground + 1 + mixed(5 * index + 1) % 7) % 8
    side = (16, 24, 32)[mixed(5 * index + 2) % 3]
    top = mixed(5 * index + 3) % (SIDE - side + 1)
    left = mixed(5 * index + 4) % (SIDE - side + 1)
    picture = np.empty((SIDE, SIDE, 3), np.uint8)
    for y in range(SIDE):
        for x in range(SIDE):
            inside = top <= y < top + side and left <= x < left + side
            base = COLOURS[colour if inside else ground][1]
            for c in range(3):
                grain = mixed(0x10000000 + ((index * SIDE + y) * SIDE + x) * 3 + c)
                offset = sum(grain >> shift & 255 for shift in (0, 8, 16, 24)) // 32 - 15
                picture[y, x, c] = min(255, max(0, base[c] + offset))
    return picture, COLOURS[colour][0]


def weights(folder):
    """The stored tensors as float32."""
    stored = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            stored.update(load_file(os.path.join(folder, name)))
    plain = {}
    for name, tensor in stored.items():
        if name.endswith(("_scale", "_scale_2")):
            continue
        if name + "_scale_2" in stored:
            codes = torch.stack([tensor & 15, tensor >> 4], -1).flatten(1).long()
            values = E2M1[codes & 7] * torch.where(codes >= 8, -1.0, 1.0)
            scale = stored[name + "_scale"].float().repeat_interleave(16, 1)
            plain[name] = values * scale * stored[name + "_scale_2"].float()
        elif name + "_scale" in stored:
            plain[name] = tensor.float() * stored[name + "_scale"].float()
        else:
            plain[name] = tensor.float()
    return plain


def load_model(folder):
    config = json.load(open(os.path.join(folder, "config.json")))
    for key in ("quantization_config", "architectures", "dtype", "model_type"):
        config.pop(key, None)
    model = Qwen3_5ForConditionalGeneration(Qwen3_5Config(**config))
    state = {name: value for name, value in weights(folder).items() if not name.startswith("mtp.")}
    missing = model.load_state_dict(state, strict=False).missing_keys
    if missing:
        sys.exit(f"{folder}: holds no {missing[0]}")
    return model.float().eval()


@torch.no_grad()
def main():
    folder, out = sys.argv[1:]
    model = load_model(folder)
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    pad = tokenizer.token_to_id("<|image_pad|>")
    end = tokenizer.token_to_id("<|im_end|>")
    processor = Qwen2VLImageProcessor(
        patch_size=16, temporal_patch_size=2, merge_size=2, image_mean=[0.5] * 3, image_std=[0.5] * 3,
        size={"shortest_edge": 4096, "longest_edge": 1048576})
    prompt = ("<|im_start|>user\n<|vision_start|>" + "<|image_pad|>" * 4 + "<|vision_end|>"
              "What colour is the square?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    answers, right = [], 0
    for index in range(SQUARES):
        picture, colour = square(index)
        pixels = processor(images=[Image.fromarray(picture)], return_tensors="pt")
        model.model.rope_deltas = None
        made = model.generate(
            input_ids=ids, max_new_tokens=MAX_TOKENS, do_sample=False, eos_token_id=end,
            pad_token_id=end, pixel_values=pixels["pixel_values"].float(),
            image_grid_thw=pixels["image_grid_thw"], mm_token_type_ids=(ids == pad).int())
        answers.append(tokenizer.decode(made[0, ids.shape[1]:].tolist()).strip())
        right += answers[-1] == colour
    with open(out, "w") as file:
        json.dump(dict(transformers=transformers.__version__, right=right, answers=answers), file)
        file.write("\n")
    print(f"{right} of {SQUARES} right")


if __name__ == "__main__":
    main()
