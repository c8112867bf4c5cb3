#!/usr/bin/env bash
# Proves a portable lockstep-probe on a machine with one or more GPUs. Needs bash, the driver and
# the one file. With python3 and PyTorch it also compares bandwidth with PyTorch's own copy and
# reduction; with compute-sanitizer (SANITIZER=path) it runs the bandwidth and latency kernels under
# it.
#
#   gpu_acceptance.sh lockstep-probe [OUT]     OUT: folder for reports (default: a temporary folder)
set -euo pipefail

[ $# -ge 1 ] || { echo "usage: gpu_acceptance.sh lockstep-probe [OUT]" >&2; exit 2; }
probe=$(realpath "$1")
out=${2:-$(mktemp -d)}
mkdir -p "$out"
failures=0
check() { # NAME COMMAND...
  local name=$1
  shift
  if "$@"; then echo "ok      $name"; else echo "FAILED  $name"; failures=$((failures + 1)); fi
}
settings() {
  local fields=uuid,clocks.applications.graphics,clocks.applications.memory,power.limit
  fields+=,ecc.mode.current,persistence_mode,compute_mode
  nvidia-smi --query-gpu=$fields --format=csv 2>/dev/null || true
}
report() { python3 - "$@"; }

settings >"$out/settings-before.txt"
for mode in quick standard; do
  begin=$(date +%s)
  rc=0
  "$probe" --$mode --nonce acceptance --report "$out/$mode.json" --html "$out/$mode.html" \
    --record "$out/$mode-record.json" \
    --profile "$out/$mode-profile.json" >"$out/$mode.txt" 2>"$out/$mode.err" || rc=$?
  seconds=$(($(date +%s) - begin))
  echo "$mode: exit $rc after $seconds s"
  grep -E ' (warn|fail|skip|inconclusive) ' "$out/$mode.txt" || true
  tail -n 2 "$out/$mode.txt"
  check "$mode: a verdict, not a crash" grep -qx "$rc" <<<$'0\n1\n3\n5'
  check "$mode: no check was skipped" bash -c "! grep -qE ' skip ' '$out/$mode.txt'"
  check "$mode: the report verifies" "$probe" verify "$out/$mode.json" --nonce acceptance
  replayed=0
  "$probe" --replay "$out/$mode.json" >"$out/$mode-replay.txt" || replayed=$?
  check "$mode: a replay gives the same verdict" test "$replayed" -eq "$rc"
done
check "standard mode ends within 9 minutes" test "$seconds" -le 540
settings >"$out/settings-after.txt"
check "no setting of a card changed" cmp -s "$out/settings-before.txt" "$out/settings-after.txt"

if command -v python3 >/dev/null; then
  check "coverage of memory >= 95 % and of SMs 100 %" report "$out/standard.json" <<'PY'
import json, sys
c = json.load(open(sys.argv[1]))["coverage"]
print(c)
sys.exit(not (c["memory_share"] >= 0.95 and c["sm_share"] == 1.0))
PY
  if python3 -c 'import torch' 2>/dev/null; then
    # Both sides measured now, alternating, on the same card.
    check "copy within 1 % of PyTorch's cudaMemcpy, read not below its reduction" \
      report "$probe" "$out" <<'PY'
import json, statistics, subprocess, sys, torch
probe, out = sys.argv[1:]
n = 4 << 30
a = torch.empty(n // 4, dtype=torch.float32, device="cuda").normal_()
b = torch.empty_like(a)
def rate(work, nbytes):
    times = []
    for i in range(23):
        s, e = torch.cuda.Event(True), torch.cuda.Event(True)
        s.record(); work(); e.record(); e.synchronize()
        if i >= 3: times.append(s.elapsed_time(e))
    return nbytes / statistics.median(times) / 1e6
# PyTorch copies contiguous tensors with cudaMemcpyAsync.
torch_copy = rate(lambda: b.copy_(a), 2 * n)
torch_read = rate(lambda: torch.sum(a), n)
del a, b
torch.cuda.empty_cache()
step = {"check": "C10", "gpu": 0, "peer": -1, "n_gpus": 1, "mode": "standard", "nonce": "x",
        "deadline_s": 60}
ran = subprocess.run([probe, "--step", json.dumps(step)], capture_output=True, text=True)
seen = json.loads(ran.stdout.splitlines()[-1].split("\t", 1)[1])
m = seen["gpus"][0]["memory_bandwidth"]
copy, read = statistics.median(m["copy_gbps"]), statistics.median(m["read_gbps"])
print(f"GB/s: copy {copy:.1f}, PyTorch {torch_copy:.1f}; read {read:.1f}, PyTorch {torch_read:.1f}")
sys.exit(not (copy >= 0.99 * torch_copy and read >= torch_read))
PY
  fi
fi

if [ -n "${SANITIZER:-}" ]; then
  n=$(nvidia-smi -L | wc -l)
  for spec in C10:0:-1 C15:0:-1 $([ "$n" -gt 1 ] && echo C21:0:1 C22:0:1); do
    IFS=: read -r id gpu peer <<<"$spec"
    step="{\"check\":\"$id\",\"gpu\":$gpu,\"peer\":$peer,\"n_gpus\":$n"
    step+=",\"mode\":\"quick\",\"nonce\":\"x\",\"deadline_s\":300}"
    check "$id under compute-sanitizer" \
      "$SANITIZER" --error-exitcode 9 "$probe" --step "$step" >"$out/sanitizer-$id.txt"
  done
fi

echo "reports in $out"
[ "$failures" -eq 0 ] || { echo "$failures check(s) failed"; exit 1; }
echo "all passed"
