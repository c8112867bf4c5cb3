#!/bin/sh
# Stands in for lockstep-ops-exact on a machine with a card: the host's formula answers for both.
# REAL is the program; files beside this one say what is wrong:
#   no-card      what it prints before it ends with 77
#   wrong-bit    the card's first digest is another one
set -eu
here=$(dirname "$0")
if [ -f "$here/no-card" ]; then
  cat "$here/no-card" >&2
  exit 77
fi
case "$*" in
  *"--backend cuda"*) ;;
  *) exec "$REAL" "$@" ;;
esac
card='{"name":"cuda:0 Fake V100","uuid":"GPU-0","driver":"12.4","arch":70,"multiprocessors":80}'
script="s/\"card\":null/\"card\":$card/"
if [ -f "$here/wrong-bit" ]; then script="$script;s/\"digest\":\"./\"digest\":\"x/"; fi
# shellcheck disable=SC2046
set -- $(echo "$@" | sed 's/--backend cuda/--backend cpu/')
"$REAL" "$@" | sed "$script"
