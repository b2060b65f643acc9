# Sourced by the scripts beside it. POSIX sh.

say() { printf '%s\n' "$*" >&2; }

have() { command -v "$1" >/dev/null 2>&1; }

# Runs a command as root; fails when that would take a password, or sudo that nobody has agreed to.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif ! have sudo || ! sudo -n true 2>/dev/null; then
        return 1
    elif [ -z "${YES:-}" ]; then
        say "sudo is needed for that: say YES=1 to agree, as in \`make up YES=1\`"
        return 1
    else
        sudo -n "$@"
    fi
}

# Installs Debian packages without starting the services in them. Fails where there is no apt.
apt_install() {
    have apt-get || return 1
    say "apt-get install $*, as root"
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
