#!/bin/sh
# Installs PostgreSQL and MariaDB for the examples and their tests, where that takes no password. They start their own,
# and no service is left running. Without PostgreSQL they use SQLite, which is built with them, and without MariaDB its test
# says that nothing was tested; so this never fails.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/scripts/lib.sh

has_postgres() {
    have initdb && return
    for program in /usr/lib/postgresql/*/bin/initdb; do
        [ -x "$program" ] && return
    done
    return 1
}

has_mariadb() { [ -x /usr/sbin/mariadbd ] || have mariadbd; }

if ! has_postgres; then
    say "installing PostgreSQL"
    if apt_install postgresql; then
        if have systemctl && [ -d /run/systemd/system ]; then
            as_root systemctl disable postgresql >/dev/null 2>&1
        fi
    elif have brew; then
        brew install postgresql >&2
    fi
fi
if ! has_mariadb; then
    say "installing MariaDB"
    apt_install mariadb-server-core mariadb-client-core || { have brew && brew install mariadb >&2; }
fi
has_postgres || say "There is no PostgreSQL here; the examples use SQLite."
has_mariadb || say "There is no MariaDB here; what is said of it is not tested."
exit 0
