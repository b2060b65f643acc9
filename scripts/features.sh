#!/bin/sh
# Tells with which features this machine can build.
#
#   features.sh          the names, one a line
#   features.sh flags    for cargo: --all-features, or --features with all but what cannot be built here
#
# Only `tls-native-tls` needs more than Rust on Linux: the headers of OpenSSL, which are installed if that can be.
set -u
cd "$(dirname "$0")/.." || exit 1
. scripts/lib.sh

names() { sed -n '/^\[features\]/,/^\[[^f]/s/^\([a-z][a-z0-9-]*\) *=.*/\1/p' Cargo.toml | grep -vx default; }

can_link_openssl() {
    [ "$(uname -s)" != Linux ] || { have pkg-config && pkg-config --exists openssl; }
}

can_link_openssl || apt_install pkg-config libssl-dev
if can_link_openssl; then
    without=none
else
    without=tls-native-tls
    say "Left out: $without, which needs OpenSSL. Debian, Ubuntu: sudo apt-get install pkg-config libssl-dev"
fi

case ${1:-} in
flags)
    if [ "$without" = none ]; then
        echo --all-features
    else
        echo "--features $(names | grep -vx "$without" | paste -sd, -)"
    fi
    ;;
*) names | grep -vx "$without" ;;
esac
