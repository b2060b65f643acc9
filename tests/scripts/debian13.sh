#!/bin/sh
# Puts the Redis 8 and the Valkey 8.1 of Debian 13 below target/debian13, without root and without a trace elsewhere.
#
# They run on any Linux with apt: each is started through the loader and the libraries of its own suite.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/scripts/lib.sh

SUITE=trixie
HERE=$PWD/target/debian13
ROOT=$HERE/root

has_both() { "$HERE/redis-server" --version >/dev/null 2>&1 && "$HERE/valkey-server" --version >/dev/null 2>&1; }

# apt with lists, state and cache of its own.
apt_here() {
    command=$1
    shift
    "$command" -qq -o Dir::Etc="$HERE/etc" -o Dir::Etc::Parts=/nowhere -o Dir::State="$HERE/state" \
        -o Dir::State::status="$HERE/state/status" -o Dir::Cache="$HERE/cache" -o APT::Sandbox::User="$(id -un)" \
        -o Acquire::Languages=none "$@" >&2
}

download() {
    have apt-get && have dpkg-deb || return 1
    mkdir -p "$HERE/etc/sources.list.d" "$HERE/etc/preferences.d" "$HERE/state/lists/partial" \
        "$HERE/cache/archives/partial" "$ROOT" || return 1
    : >"$HERE/state/status"
    signed=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -r "$signed" ] || return 1
    echo "deb [signed-by=$signed] http://deb.debian.org/debian $SUITE main" >"$HERE/etc/sources.list"
    apt_here apt-get update || return 1
    # All that they need, and nothing that is only recommended: no script of a package is run.
    apt_here apt-get install --yes --download-only --no-install-recommends redis-server valkey-server || return 1
    for package in "$HERE"/cache/archives/*.deb; do
        case $package in
        */redis-*|*/valkey-*|*/lib*|*/zlib*) dpkg-deb --extract "$package" "$ROOT" || return 1 ;;
        esac
    done
    rm -rf "$HERE/cache"
}

# A program of that suite, to be started like any other.
wrapper() {
    loader=$(ls "$ROOT"/usr/lib*/*/ld-linux*.so* "$ROOT"/usr/lib*/ld-linux*.so* 2>/dev/null | head -n 1)
    libraries=$(for dir in "$ROOT"/usr/lib/*-linux-gnu*; do printf %s: "$dir"; done)
    printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' "$loader" "${libraries%:}" "$ROOT/usr/bin/$1" \
        >"$HERE/$1" && chmod 755 "$HERE/$1"
}

has_both || {
    say "fetching Redis 8 and Valkey 8.1 from Debian 13"
    download && wrapper redis-server && wrapper valkey-server
}
has_both || {
    say "Redis 8 and Valkey 8.1 could not be had from Debian 13 (that takes apt-get and its keys)."
    exit 1
}
