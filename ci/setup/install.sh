#!/usr/bin/env bash
# Installs what ci/setup/packages.txt names and the machine lacks. Needs root or sudo only then.
set -euo pipefail
cd "$(dirname "$0")"

missing=()
while read -r package; do
  [ -n "$package" ] || continue
  status=$(dpkg-query -W -f '${Status}' "$package" 2> /dev/null || true)
  [[ $status == *"ok installed"* ]] || missing+=("$package")
done < packages.txt
[ ${#missing[@]} -gt 0 ] || exit 0

echo "Installing: ${missing[*]}"
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo > /dev/null; then
    echo "Needs root or sudo to install: ${missing[*]}" >&2
    exit 1
  fi
  sudo=(sudo)
fi
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
