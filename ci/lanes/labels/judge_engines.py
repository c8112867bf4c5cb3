"""Does 'lockstep diverge' label engines rightly? Honest ones and defects on the golden model.

Usage: judge_engines.py PROGRAMS GOLDEN CASES FOLDER: CASES honest and CASES wrong pairs of an
engine and a prompt. Sizes of defects are log-uniform from 1 to 100 bounds of a local error. Exit 1
unless 99 % of the labels are right and no pair whose local error is above the bound is called TIE
or SAME.
"""
import json
import os
import random
import shutil
import subprocess
import sys

PROMPTS = ["chat-think", "utf8-mixed", "chat-code", "repeat"]
N_LAYERS = 8
DEFECTS = ["scaled", "shrunk", "some_rows", "other_weights"]
HERE = os.path.dirname(os.path.abspath(__file__))


def diverge(programs, golden, reference, judged):
    engine = os.path.join(programs, "lockstep-generate")
    flags = "--precision bf16 --tp 1 --threads 1 --mtp 0"
    command = [os.path.join(programs, "lockstep-diverge"),
               f"{engine} {flags} --model {reference}", f"{engine} {flags} --model {judged}",
               "--model", reference, "--prompts", os.path.join(golden, "oracle/public"),
               "--precision", "bf16", "--max-tokens", "24", "--local", str(len(PROMPTS)), "--json"]
    for prompt in PROMPTS:
        command += ["--prompt", prompt]
    run = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if run.returncode not in (0, 1):
        sys.exit(f"judge_engines.py: lockstep-diverge ended with {run.returncode}")
    return json.loads(run.stdout)


def make(source, target, seed, *what):
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run([sys.executable, os.path.join(HERE, "make_engine.py"), source, target, str(seed),
                    *what], check=True)


def is_honest(verdict):
    return verdict in ("SAME", "TIE")


def main():
    programs, golden, cases, folder = sys.argv[1:]
    cases = int(cases)
    reference, judged = os.path.join(folder, "reference"), os.path.join(folder, "judged")
    shutil.rmtree(reference, ignore_errors=True)
    subprocess.run([os.path.join(programs, "lockstep-weights"), "convert", "--model",
                    os.path.join(golden, "tiny-qwen3_5"), "--to", "bf16", "--out", reference],
                   check=True, stdout=subprocess.DEVNULL)
    draw = random.Random(1)
    honest = {"n": 0, "right": 0, "ties": 0, "worst": 0.0}
    wrong = {"n": 0, "right": 0, "above": 0, "above_right": 0, "called_honest": 0, "named": 0}
    sizes = []
    for seed in range((cases + len(PROMPTS) - 1) // len(PROMPTS)):
        make(reference, judged, seed, "honest")
        for prompt in diverge(programs, golden, reference, judged)["prompts"]:
            honest["n"] += 1
            honest["right"] += is_honest(prompt["verdict"])
            honest["ties"] += prompt["verdict"] == "TIE"
            honest["worst"] = max([honest["worst"]] + [one["rel_l2"] for one in prompt["local"]])
        branch, layer = draw.choice(["mlp", "mixer"]), draw.randrange(N_LAYERS)
        kind, bounds = DEFECTS[seed % len(DEFECTS)], 100 ** draw.random()
        report = diverge(programs, golden, reference, reference) if seed == 0 else None
        limit = report["local_limit"] if report else limit
        make(reference, judged, seed, kind, branch, str(layer), str(bounds * limit))
        for prompt in diverge(programs, golden, reference, judged)["prompts"]:
            local = max(one["rel_l2"] for one in prompt["local"])
            right = prompt["verdict"] == "DEFECT"
            sizes.append(local / limit)
            wrong["n"] += 1
            wrong["right"] += right
            wrong["named"] += prompt["culprit"] == f"layers.{layer}.{branch}"
            if local > limit:
                wrong["above"] += 1
                wrong["above_right"] += right
                wrong["called_honest"] += is_honest(prompt["verdict"])
            if not right:
                print(f"{kind} {branch} {layer} of {bounds:.3g} bounds, {prompt['name']}: "
                      f"{prompt['verdict']}, local error {local / limit:.3g} bounds", flush=True)
    print(json.dumps({"honest": honest, "wrong": wrong, "local_limit": limit,
                      "local_bounds": [min(sizes), max(sizes)]}))
    good = (honest["right"] >= 0.99 * honest["n"] and wrong["right"] >= 0.99 * wrong["n"]
            and wrong["called_honest"] == 0 and wrong["above"] > 0)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
