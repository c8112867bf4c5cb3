#!/usr/bin/env bash
# Unpacks a toolchain from Debian packages into a private folder; the system stays as it is and no
# root is needed. apt checks signatures and digests of everything it downloads.
#
#   fetch.sh cuda      CUDA 12.4: the last major version that builds for sm_70 (prints the folder)
#   fetch.sh glibc231  Debian 11's g++-10, glibc 2.31 and static OpenSSL: what is linked with them
#                      runs on every glibc from 2.31 on (prints the folder)
#
# The folder is ${LOCKSTEP_CACHE:-$HOME/.cache/lockstep}/toolchain/NAME. A second call is a no-op.
set -euo pipefail

usage() {
  echo "usage: fetch.sh cuda|glibc231" >&2
  exit 2
}
[ $# -eq 1 ] || usage
name=$1

case $name in
cuda)
  suite=trixie
  components="main contrib non-free"
  packages="nvidia-cuda-toolkit nvidia-cuda-dev libnvvm4 libcudart12 libnvidia-ml-dev libnccl2
    libnccl-dev libcu++-dev libcub-dev libthrust-dev"
  ;;
glibc231)
  suite=bullseye
  components=main
  packages="g++-10 gcc-10 cpp-10 gcc-10-base libstdc++-10-dev libgcc-10-dev libstdc++6 libgcc-s1
    libasan6 libubsan1 libc6 libc6-dev libcrypt1 libcrypt-dev linux-libc-dev libssl-dev libisl23
    libmpc3 libmpfr6 libgmp10 zlib1g"
  ;;
*) usage ;;
esac

fail() {
  echo "fetch.sh: $*" >&2
  exit 1
}

cache=${LOCKSTEP_CACHE:-$HOME/.cache/lockstep}/toolchain
target=$cache/$name
work=$cache/apt-$name
# A changed package list is a different toolchain.
stamp=$(printf '%s\n' "$suite" "$components" $packages | sha256sum | cut -c1-16)
mkdir -p "$cache"
exec 9>"$cache/$name.lock"
flock 9
if [ "$(cat "$target/.complete" 2>/dev/null)" = "$stamp" ]; then
  echo "$target"
  exit 0
fi

for program in apt-get dpkg sha256sum; do
  command -v $program >/dev/null || fail "$program is missing: this script needs a Debian machine"
done

# The archive that this machine already uses for its own release, never a name of ours.
archive_address() {
  local codename
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk -v release="$codename" '$2 == release && $3 == "main" { print $1; exit }'
}
address=$(archive_address)
[ -n "$address" ] ||
  fail "apt's configuration names no Debian archive: add one to sources.list"

rm -rf "$work" "$target.part"
mkdir -p "$work/lists/partial" "$work/archives/partial" "$target.part"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
signed_by=
[ -r $keyring ] && signed_by=" signed-by=$keyring"
echo "deb [arch=amd64$signed_by] $address $suite $components" >"$work/sources.list"

# An older release's index may have passed its date; signatures and digests are checked anyway.
options=(
  -qq
  -o Dir::Etc::SourceList="$work/sources.list"
  -o Dir::Etc::SourceParts=-
  -o Dir::State::Lists="$work/lists"
  -o Dir::Cache="$work" -o Dir::Cache::archives="$work/archives"
  -o APT::Sandbox::User="$(id -un)" -o Acquire::Check-Valid-Until=false
  -o Acquire::Retries=3
  -o Acquire::Languages=none -o APT::Architecture=amd64 -o APT::Architectures=amd64
)
apt-get "${options[@]}" update >&2 ||
  fail "cannot read the index of $suite at the machine's archive"
wanted=()
for package in $packages; do
  wanted+=("$package/$suite")
done
(cd "$work/archives" &&
  apt-get "${options[@]}" download "${wanted[@]}" >&2) ||
  fail "cannot download the packages of $suite from the machine's archive"

for package in "$work"/archives/*.deb; do
  dpkg -x "$package" "$target.part" || fail "cannot unpack $(basename "$package")"
  rm "$package"
done
# Absolute symbolic links would leave the folder.
find "$target.part" -type l -lname '/*' | while read -r link; do
  inside=$target.part$(readlink "$link")
  ln -sfn "$(realpath -m --relative-to="$(dirname "$link")" "$inside")" "$link"
done
if [ "$name" = cuda ]; then
  # nvcc finds its parts through this file, and Debian's names the system's own folders.
  toolkit=$target.part/usr/lib/nvidia-cuda-toolkit
  rm -f "$toolkit/bin/nvcc.profile"
  cat >"$toolkit/bin/nvcc.profile" <<'PROFILE'
NVVMIR_LIBRARY_DIR = $(_HERE_)/../libdevice
PATH += $(_HERE_):$(_HERE_)/../../../bin:
LD_LIBRARY_PATH += $(_HERE_)/../../x86_64-linux-gnu:
INCLUDES += -I$(_HERE_)/../../../include $(_SPACE_)
LIBRARIES += $(_SPACE_) -L$(_HERE_)/../../x86_64-linux-gnu
PROFILE
fi
echo "$stamp" >"$target.part/.complete"
rm -rf "$target" "$work"
mv "$target.part" "$target"
echo "$target"
