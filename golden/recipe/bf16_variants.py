"""How far apart honest bfloat16 engines are: the second oracle behind the bf16 margin bound.

Usage: bf16_variants.py --model DIR --oracle PREFIX [--names a,b] [--variants N]

Every variant rounds to bfloat16 wherever docs/numerics.md says that a tensor is stored, and at a
set of its own of the places where one engine stores a tensor and another keeps it in registers. The
oracle's tokens are fed; each step's margin error is divided by the standard deviation that
validation/tolerance.h gives it. Prints the root mean square per prompt, smallest and largest of the
variants.
"""
import argparse
import json

import numpy as np

from numpy_forward import F32, Model, read_safetensors, rms_norm, sigmoid, silu

# Places where a tensor may or may not be rounded, one bit of a variant each.
OPTIONAL = ["q_before_norm", "q_before_rope", "softmax", "attention_before_gate", "conv_before_silu",
            "qk_unit", "readout", "z", "silu", "half_sums"]


def bf16(x):
    bits = np.ascontiguousarray(x, F32).view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(F32)


class Variant(Model):
    def choose(self, chosen):
        self.chosen = set(chosen)

    def at(self, place, x):
        return bf16(x) if place in self.chosen else x

    def row_parallel(self, x, weight):
        """Two half-K partial sums, added in float32, rounded once."""
        half = x.shape[-1] // 2
        a = self.at("half_sums", x[..., :half] @ weight[:, :half].T)
        b = self.at("half_sums", x[..., half:] @ weight[:, half:].T)
        return bf16(a + b)

    def attention(self, w, h, state, start):
        t, dim = self.text, self.text["head_dim"]
        n_tokens = len(h)
        n_heads, n_kv = t["num_attention_heads"], t["num_key_value_heads"]
        positions = np.arange(start, start + n_tokens)
        both = bf16(h @ w["q"].T).reshape(n_tokens, n_heads, 2 * dim)
        q, gate = both[..., :dim], both[..., dim:]
        k = bf16(h @ w["k"].T).reshape(n_tokens, n_kv, dim)
        v = bf16(h @ w["v"].T).reshape(n_tokens, n_kv, dim)
        q = self.at("q_before_rope", rms_norm(q, w["q_norm"], self.eps))
        k = self.at("q_before_rope", rms_norm(k, w["k_norm"], self.eps))
        axes = np.stack([positions] * 3)  # text: all three axes are the place
        q, k = bf16(self.rotate(q, axes)), bf16(self.rotate(k, axes))
        out = np.empty((n_tokens, n_heads, dim), F32)
        hidden = positions[None, :] > positions[:, None]
        for head in range(n_heads):
            kv = head // (n_heads // n_kv)
            scores = q[:, head] @ k[:, kv].T * F32(dim**-0.5)
            scores = np.where(hidden, F32(-np.inf), scores)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            total = scores.sum(-1, keepdims=True)
            out[:, head] = self.at("softmax", scores) @ v[:, kv] / total
        out = bf16(self.at("attention_before_gate", out) * sigmoid(gate))
        return self.row_parallel(out.reshape(n_tokens, -1), w["o"])

    def gated_delta(self, w, h, state):
        t = self.text
        n_k, n_v = t["linear_num_key_heads"], t["linear_num_value_heads"]
        d_k, d_v = t["linear_key_head_dim"], t["linear_value_head_dim"]
        n_tokens = len(h)
        mixed = np.concatenate([state["conv"], bf16(h @ w["in_proj_qkv"].T)])
        taps = w["conv1d.weight"][:, 0]
        conv = sum(mixed[j:j + n_tokens] * taps[:, j] for j in range(4))
        conv = bf16(silu(self.at("conv_before_silu", conv)))
        q = conv[:, :n_k * d_k].reshape(n_tokens, n_k, d_k).repeat(n_v // n_k, axis=1)
        k = conv[:, n_k * d_k:2 * n_k * d_k].reshape(n_tokens, n_k, d_k).repeat(n_v // n_k, axis=1)
        v = conv[:, 2 * n_k * d_k:].reshape(n_tokens, n_v, d_v)
        unit = lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True) + F32(1e-6))
        q = self.at("qk_unit", unit(q)) * F32(d_k**-0.5)
        k = self.at("qk_unit", unit(k))
        beta = sigmoid(bf16(h @ w["in_proj_b"].T))
        rate = np.logaddexp(F32(0), bf16(h @ w["in_proj_a"].T) + w["dt_bias"])
        decay = np.exp(-np.exp(w["A_log"]) * rate)
        s, out = state["s"], np.empty((n_tokens, n_v, d_v), F32)
        for i in range(n_tokens):
            s = s * decay[i][:, None, None]
            update = beta[i][:, None] * (v[i] - np.einsum("hkv,hk->hv", s, k[i]))
            s = s + k[i][:, :, None] * update[:, None, :]
            out[i] = np.einsum("hkv,hk->hv", s, q[i])
        z = bf16(h @ w["in_proj_z"].T).reshape(n_tokens, n_v, d_v)
        out = rms_norm(self.at("readout", out), w["norm.weight"], 1e-6)
        out = bf16(self.at("z", out) * silu(z))
        return self.row_parallel(out.reshape(n_tokens, -1), w["out_proj"])

    def logits(self, ids, n_last):
        states = self.fresh_state()
        x = bf16(self.embed[ids])
        for i, w in enumerate(self.layers):
            h = bf16(rms_norm(x, w["in"], self.eps))
            mix = self.attention if self.full[i] else self.gated_delta
            x = bf16(x + (mix(w, h, states[i], 0) if self.full[i] else mix(w, h, states[i])))
            h = bf16(rms_norm(x, w["post"], self.eps))
            gate = self.at("silu", silu(bf16(h @ w["gate"].T)))
            x = bf16(x + self.row_parallel(bf16(gate * bf16(h @ w["up"].T)), w["down"]))
        return bf16(rms_norm(x[-n_last:], self.final, self.eps)) @ self.head.T


def margin_sigmas(model, prompt, norm):
    """Margin errors of a prompt in the standard deviations of tolerance::bf16_logit_sigma."""
    greedy, n = prompt["greedy"], len(prompt["greedy"])
    logits = model.logits(prompt["ids"] + greedy[:-1], n)
    noise = 3 * prompt["bf16_noise"]["final_norm"]["rel"]
    errors = []
    for i in range(n):
        others = logits[i].copy()
        others[greedy[i]] = -np.inf
        other = int(np.argmax(others))
        margin = float(logits[i, greedy[i]] - logits[i, other])
        distance = max(np.linalg.norm(model.head[greedy[i]] - model.head[c])
                       for c in (prompt["second"][i], other))
        sigma = distance * norm * noise / np.sqrt(model.head.shape[1])
        errors.append((margin - prompt["margin"][i]) / sigma)
    return np.array(errors)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--oracle", required=True, help="path without .json / .safetensors")
    parser.add_argument("--names", help="comma-separated (default: all text prompts)")
    parser.add_argument("--variants", type=int, default=16)
    arguments = parser.parse_args()
    with open(arguments.oracle + ".json", encoding="utf-8") as file:
        prompts = [p for p in json.load(file)["prompts"] if not p["image"] and not p["images"]]
    tensors = read_safetensors(arguments.oracle + ".safetensors")
    if arguments.names:
        prompts = [p for p in prompts if p["name"] in arguments.names.split(",")]
    model = Variant(arguments.model)
    rng = np.random.default_rng(1)
    masks = [[], OPTIONAL]
    while len(masks) < arguments.variants:
        masks.append([place for place in OPTIONAL if rng.random() < 0.5])
    print(f"{'prompt':12} {'rms least':>10} {'rms most':>9} {'worst step':>11}")
    everything = []
    for prompt in prompts:
        norm = max(np.linalg.norm(tensors[f"{prompt['name']}/{tap}"][1], axis=-1).max()
                   for tap in ("final_norm", "decode/final_norm"))
        rms, worst = [], 0.0
        for mask in masks:
            model.choose(mask)
            errors = margin_sigmas(model, prompt, norm)
            rms.append(float(np.sqrt(np.mean(errors**2))))
            worst = max(worst, float(np.abs(errors).max()))
        everything += rms
        print(f"{prompt['name']:12} {min(rms):10.3f} {max(rms):9.3f} {worst:11.2f}", flush=True)
    logs = np.log(everything)
    print(f"{len(everything)} runs: largest rms {max(everything):.3f}; of log rms mean "
          f"{logs.mean():.3f}, standard deviation {logs.std():.3f}")


if __name__ == "__main__":
    main()
