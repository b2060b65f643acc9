#!/usr/bin/env bash
# Does what README.md says, as somebody who reads it for the first time: starts its servers, runs its program in a crate of its own, installs
# the command line and runs its lines, and then what it says of make. The ports that it names must be free.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/scripts/lib.sh

ROOT=$PWD
DIR=$ROOT/target/readme
MOST=12000000 # bytes of the command line

# The fenced block of a language, by its number.
block() {
    awk -v language="$1" -v wanted="$2" '
        /^```/ { open = !open; on = open && $0 == "```" language && ++count == wanted; next }
        on' "$ROOT/README.md"
}

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

step() { printf '\n-- %s\n' "$1"; }

for port in 7101 7102 7103 7104 7105; do
    if answers $port; then say "a program listens on 127.0.0.1:$port: end it first (make down)"; exit 1; fi
done

end_servers() {
    for port in 7101 7102 7103; do
        (exec 3<>"/dev/tcp/127.0.0.1/$port" && printf 'SHUTDOWN NOSAVE\r\n' >&3) 2>/dev/null || true
    done
}
trap 'end_servers; make --silent down' EXIT

rm -rf "$DIR"
mkdir -p "$DIR/bin" "$DIR/app/src"
ln -s "$ROOT" "$DIR/redquorum" # its program says path = "../redquorum"
ln -s "$(tests/scripts/servers.sh one)" "$DIR/bin/redis-server"
PATH=$DIR/bin:$PATH
export CARGO_TARGET_DIR=$ROOT/target CARGO_INSTALL_ROOT=$DIR

step "three instances"
(cd "$DIR" && sh -euc "$(block sh 1)")

step "the first program"
printf '[package]\nname = "app"\nversion = "0.0.0"\nedition = "2024"\n\n[workspace]\n\n%s\n' "$(block toml 1)" >"$DIR/app/Cargo.toml"
block rust,no_run 1 >"$DIR/app/src/main.rs"
cp Cargo.lock "$DIR/app/"
(cd "$DIR/app" && timeout 600 cargo run --quiet) | tee "$DIR/said"
grep -q 'valid for' "$DIR/said"

install=$(grep -o '`cargo install[^`]*`' README.md | tr -d '`')
step "$install"
$install --quiet
bytes=$(stat -c %s "$DIR/bin/redquorum")
say "the command line has $bytes bytes"
[ "$bytes" -lt $MOST ] || { say "more than $MOST"; exit 1; }

step "the command line"
printf '#!/bin/sh\necho done >nightly\n' >"$DIR/nightly.sh"
chmod +x "$DIR/nightly.sh"
(cd "$DIR" && sh -euc "$(block sh 2)")
grep -q 'done' "$DIR/nightly"
end_servers

step "make demo"
make demo

step "make up"
make up
redquorum -i "127.0.0.1:7101,127.0.0.1:7102,127.0.0.1:7103,127.0.0.1:7104,127.0.0.1:7105" run -r a --try -- true
make down
