# Sourced by the scripts beside it. POSIX sh.

say() { printf '%s\n' "$*" >&2; }

have() { command -v "$1" >/dev/null 2>&1; }

# Runs a command as root; fails when that would take a password.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif have sudo && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        say "this needs root: $*"
        return 1
    fi
}

# Installs Debian packages without starting the services in them. Fails where there is no apt.
apt_install() {
    have apt-get || return 1
    as_root sh -s -- "$@" >&2 <<'ROOT'
        export DEBIAN_FRONTEND=noninteractive
        policy=/usr/sbin/policy-rc.d
        if [ ! -e "$policy" ]; then
            trap 'rm -f "$policy"' EXIT
            printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
        fi
        install() { apt-get install -y -q --no-install-recommends "$@"; }
        install "$@" || { apt-get update -q && install "$@"; }
ROOT
}
