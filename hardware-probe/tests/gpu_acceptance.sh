#!/usr/bin/env bash
# Proves a portable lockstep-probe on a machine with one or more GPUs. Needs bash, the driver and
# the one file. With python3 and PyTorch it also compares bandwidth with PyTorch's own copy and
# reduction; with compute-sanitizer (SANITIZER=path) it runs the bandwidth and latency kernels under
# it.
#
#   gpu_acceptance.sh lockstep-probe [OUT]     OUT: folder for reports (default: a temporary folder)
#   MODES="" gpu_acceptance.sh ...              only some modes, or none
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
# Everything that nvidia-smi tells and that is no reading: modes, limits, clock settings, versions.
settings() {
  nvidia-smi -q | awk '
    /^    [^ ]/ {
      reading = /^    (PCI|Clocks|Clocks (Event|Throttle) Reasons.*|.*Memory Usage) *$/ ||
                /^    (Utilization|(Encoder|FBC) Stats|ECC Errors|Retired Pages) *$/ ||
                /^    (Remapped Rows|Processes) *$/
    }
    !reading && !/Timestamp|Power Draw|Current Temp|T.Limit Temp/ &&
      !/Fan Speed|Performance State|Processes/
  '
}
report() { python3 - "$@"; }

settings >"$out/settings-before.txt"
for mode in ${MODES-quick standard}; do
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
  [ $mode != standard ] || check "standard mode ends within 9 minutes" test "$seconds" -le 540
done
settings >"$out/settings-after.txt"
check "there are settings to compare" test "$(wc -l <"$out/settings-before.txt")" -gt 50
check "no setting of a card changed" diff "$out/settings-before.txt" "$out/settings-after.txt"

if [ -f "$out/${mode:-none}.json" ] && command -v python3 >/dev/null; then
  check "coverage of memory >= 95 % and of SMs 100 %" report "$out/$mode.json" <<'PY'
import json, sys
c = json.load(open(sys.argv[1]))["coverage"]
print(c)
sys.exit(not (c["memory_share"] >= 0.95 and c["sm_share"] == 1.0))
PY
fi
if command -v python3 >/dev/null; then
  if python3 -c 'import torch' 2>/dev/null; then
    # Both sides measured now, alternating, on the same card.
    check "copy within 1 % of cudaMemcpy and PyTorch's copy, read not below PyTorch's reduction" \
      report "$probe" <<'PY'
import ctypes, glob, json, os, statistics, subprocess, sys, time, torch
probe = sys.argv[1]
packages = os.path.dirname(os.path.dirname(torch.__file__))
cudart = ctypes.CDLL(glob.glob(packages + "/nvidia/**/libcudart.so.*", recursive=True)[0])
address = ctypes.c_void_p
cudart.cudaMemcpyAsync.argtypes = [address, address, ctypes.c_size_t, ctypes.c_int, address]
# The probe's own size: 64 times the L2, at least 1 GiB.
n = max(1 << 30, 64 * torch.cuda.get_device_properties(0).L2_cache_size)
def rate(work, nbytes):
    # An idle card needs a while to reach its clocks.
    begin = time.monotonic()
    while time.monotonic() - begin < 0.5:
        work()
        torch.cuda.synchronize()
    times = []
    for i in range(20):
        s, e = torch.cuda.Event(True), torch.cuda.Event(True)
        s.record(); work(); e.record(); e.synchronize()
        times.append(s.elapsed_time(e))
    return nbytes / statistics.median(times) / 1e6
stream = torch.cuda.current_stream().cuda_stream
device_to_device = 3
memcpy = lambda: cudart.cudaMemcpyAsync(b.data_ptr(), a.data_ptr(), n, device_to_device, stream)
step = {"check": "C10", "gpu": 0, "peer": -1, "n_gpus": 1, "mode": "standard", "nonce": "x",
        "deadline_s": 60}
def probed():
    ran = subprocess.run([probe, "--step", json.dumps(step)], capture_output=True, text=True)
    seen = json.loads(ran.stdout.splitlines()[-1].split("\t", 1)[1])
    m = seen["gpus"][0]["memory_bandwidth"]
    return statistics.median(m["copy_gbps"]), statistics.median(m["read_gbps"])
rows = []
for _ in range(3):
    a = torch.empty(n // 4, dtype=torch.float32, device="cuda").normal_()
    b = torch.empty_like(a)
    row = [rate(memcpy, 2 * n), rate(lambda: b.copy_(a), 2 * n), rate(lambda: torch.sum(a), n)]
    del a, b
    torch.cuda.empty_cache()
    rows.append(row + list(probed()))
cuda, torch_copy, torch_sum, copy, read = (statistics.median(c) for c in zip(*rows))
print(f"GB/s: copy {copy:.1f}, cudaMemcpy {cuda:.1f}, PyTorch {torch_copy:.1f}; "
      f"read {read:.1f}, PyTorch's sum {torch_sum:.1f}")
sys.exit(not (copy >= 0.99 * max(cuda, torch_copy) and read >= torch_sum))
PY
  fi
fi

if [ -n "${SANITIZER:-}" ]; then
  n=$(nvidia-smi -L | wc -l)
  for spec in C10:0:-1 C15:0:-1 $([ "$n" -gt 1 ] && echo C21:0:1 C22:0:1); do
    IFS=: read -r id gpu peer <<<"$spec"
    step="{\"check\":\"$id\",\"gpu\":$gpu,\"peer\":$peer,\"n_gpus\":$n"
    step+=",\"mode\":\"quick\",\"nonce\":\"x\",\"deadline_s\":300}"
    sanitized() {
      "$SANITIZER" --error-exitcode 9 "$probe" --step "$step" >"$out/sanitizer-$id.txt"
    }
    check "$id under compute-sanitizer" sanitized
  done
fi

echo "reports in $out"
[ "$failures" -eq 0 ] || { echo "$failures check(s) failed"; exit 1; }
echo "all passed"
