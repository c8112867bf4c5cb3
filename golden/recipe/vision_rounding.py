"""How far bf16 storage moves the rows of the vision tower, rounding point by rounding point.

Usage: vision_rounding.py --model DIR [--pictures N]

Runs the tower of numpy_vision.py in float64 and rounds what docs/numerics.md says is stored in bf16:
all points together, and one group of points at a time. Independent roundings add in squares, so the
groups tell which part grows with the number of blocks: the source of a number in
validation/tolerance.h.
"""
import argparse
import math

import numpy as np

import numpy_forward as text_model
from numpy_vision import Tower, draw, gelu_exact, gelu_tanh, softmax

SIZES = [(64, 64), (96, 160), (256, 32), (192, 224), (96, 96), (160, 64)]
INPUT = ("patches", "positions", "sum")
BLOCK = ("norm", "product", "rope", "attention", "gelu", "residual")
MERGER = ("merger norm", "merger product", "merger gelu", "rows")


def to_bf16(x):
    bits = x.astype(np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


class RoundingTower(Tower):
    """Rounds at the points named in `points`."""

    def __init__(self, directory, weights):
        super().__init__(directory, weights)
        self.cache = {}
        self.points = set()

    def get(self, name):
        if name not in self.cache:
            self.cache[name] = super().get(name)
        return self.cache[name]

    def stored(self, point, x):
        return to_bf16(x) if point in self.points else x

    def block(self, x, base, angle):
        n, heads = len(x), self.config["num_heads"]
        dim = self.config["hidden_size"] // heads
        normed = self.stored("norm", self.norm(x, base + "norm1"))
        qkv = self.stored("product", self.linear(normed, base + "attn.qkv"))
        q, k, v = qkv.reshape(n, 3, heads, dim).swapaxes(0, 1)
        q = self.stored("rope", self.rotate(q, angle))
        k = self.stored("rope", self.rotate(k, angle))
        weights = softmax(np.einsum("thd,shd->hts", q, k) * dim**-0.5)
        out = self.stored("attention", np.einsum("hts,shd->thd", weights, v).reshape(n, -1))
        branch = self.stored("product", self.linear(out, base + "attn.proj"))
        x = self.stored("residual", x + branch)
        normed = self.stored("norm", self.norm(x, base + "norm2"))
        wide = self.stored("product", self.linear(normed, base + "mlp.linear_fc1"))
        wide = self.stored("gelu", gelu_tanh(wide))
        branch = self.stored("product", self.linear(wide, base + "mlp.linear_fc2"))
        return self.stored("residual", x + branch)

    def rows(self, picture, points):
        self.points = set(points)
        patches, (rows, columns) = self.patches(picture)
        x = self.stored("patches", self.linear(patches, "patch_embed.proj"))
        x = self.stored("sum", x + self.stored("positions", self.position_rows(rows, columns)))
        angle = self.angles(rows, columns)
        for b in range(self.config["depth"]):
            x = self.block(x, f"blocks.{b}.", angle)
        merged = self.stored("merger norm", self.norm(x, "merger.norm"))
        merged = merged.reshape(len(x) // self.merge**2, -1)
        wide = self.stored("merger product", self.linear(merged, "merger.linear_fc1"))
        wide = self.stored("merger gelu", gelu_exact(wide))
        return self.stored("rows", self.linear(wide, "merger.linear_fc2"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--pictures", type=int, default=12)
    arguments = parser.parse_args()
    tower = RoundingTower(arguments.model, text_model.Weights(arguments.model))
    pictures = [draw(*SIZES[i % len(SIZES)], 7 * i + 1) for i in range(arguments.pictures)]
    exact = [tower.rows(picture, []) for picture in pictures]

    def error(points):
        moved = [tower.rows(picture, points) for picture in pictures]
        return [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(moved, exact)]

    def line(label, points):
        errors = error(points)
        print(f"{label:24} mean {np.mean(errors):.2e}  worst {np.max(errors):.2e}")
        return np.mean(errors)

    for point in INPUT + BLOCK + MERGER:
        line(point, [point])
    parts = [line(name, points) for name, points in
             (("input", INPUT), ("blocks", BLOCK), ("merger", MERGER))]
    line("all", INPUT + BLOCK + MERGER)
    depth = tower.config["depth"]
    deep = math.sqrt(parts[0]**2 + parts[1]**2 * 27 / depth + parts[2]**2)
    print(f"27 blocks instead of {depth}, by squares: {deep:.2e}")


if __name__ == "__main__":
    main()
