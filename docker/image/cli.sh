#!/usr/bin/env bash
# Builds the image redquorum: the program of the command line, linked statically, and nothing else. No root and no
# registry of images is needed, only Docker, and Rust's target for musl.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

IMAGE=${REDQUORUM_CLI_IMAGE:-redquorum}
TARGET=$(uname -m)-unknown-linux-musl
ROOT=target/image/cli

say() { printf '%s\n' "$*" >&2; }

docker version >/dev/null 2>&1 || { say "no Docker engine answers: start it, or join the group docker"; exit 1; }
rustup target list --installed 2>/dev/null | grep -qx "$TARGET" || rustup target add "$TARGET" ||
    { say "needed: rustup target add $TARGET"; exit 1; }

cargo build --locked --release --target "$TARGET" --features cli --bin redquorum
rm -rf "$ROOT"
mkdir -p "$ROOT"
cp "${CARGO_TARGET_DIR:-target}/$TARGET/release/redquorum" "$ROOT/"
strip "$ROOT/redquorum" 2>/dev/null || true # makes it smaller where there are binutils
tar -C "$ROOT" --sort=name --mtime=@0 --owner=0 --group=0 -c . |
    docker import --change 'ENTRYPOINT ["/redquorum"]' - "$IMAGE" >/dev/null
say "built $IMAGE: $(docker image inspect --format '{{.Size}}' "$IMAGE") bytes, $(docker run --rm "$IMAGE" --version)"
