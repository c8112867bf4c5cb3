#!/bin/sh
# Stands in for compute-sanitizer; the file finds-races beside it lets racecheck find one, broken
# keeps it from working, idle makes every case one that does nothing on the card.
here=$(dirname "$0")
echo "========= COMPUTE-SANITIZER"
if [ -f "$here/broken" ]; then
  echo "========= Error: cannot attach"
  exit 255
fi
if [ -f "$here/idle" ]; then
  echo "========= Error: Target application terminated before first instrumented API call"
  exit 255
fi
case "$*" in
  *racecheck*)
    if [ -f "$here/finds-races" ]; then
      echo "========= Error: Race reported between Write access and Read access"
      exit 9
    fi
    ;;
esac
exit 0
