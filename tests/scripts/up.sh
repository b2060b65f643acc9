#!/usr/bin/env bash
# Starts five servers to try things with, on 127.0.0.1:7101 to 7105, and leaves them running; or ends them.
#
#   up.sh          starts those that do not answer, with nothing on disk, and opens them; none beside another program on one of the ports
#   up.sh down     ends those that it has started, and no others
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/scripts/lib.sh

DIR=$PWD/target/up
PORTS="7101 7102 7103 7104 7105"

pid_of() { cat "$DIR/$1/pid" 2>/dev/null; }

# Whether it runs, and is the one that was started here: a process number may be somebody else's by now.
runs() {
    pid=$(pid_of "$1") && [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null &&
        ps -o args= -p "$pid" | grep -q "[-]server 127.0.0.1:$1"
}

# Whether another program has the port: ours cannot listen there.
is_taken() {
    ! runs "$1" && (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

start() {
    mkdir -p "$DIR/$1" && "$SERVER" --bind 127.0.0.1 --port "$1" --dir "$DIR/$1" --pidfile "$DIR/$1/pid" \
        --logfile "$DIR/$1/log" --save '' --appendonly no --maxmemory-policy noeviction --daemonize yes >/dev/null
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        runs "$1" && grep -q -i 'ready to accept' "$DIR/$1/log" && return
        sleep 0.2
    done
    say "port $1: it did not start; see $DIR/$1/log"
    exit 1
}

# It was started just now, so no lock can have been held on it: it votes at once (docs/wire.md, "The admission record").
open() {
    exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'INFO server\r\nINFO replication\r\nQUIT\r\n' >&3 || return
    said=$(tr -d '\r' <&3)
    first() { printf '%s\n' "$said" | sed -n "s/^$1:\(.\{16\}\).*/\1/p"; }
    now=$(date +%s%3N)
    record="$(first run_id)/$(first master_replid) $now 10000 opened $now"
    exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'SET redquorum:admission "%s" NX\r\nQUIT\r\n' "$record" >&3 || return
    grep -q '^+OK' <&3
}

if [ "${1:-}" = down ]; then
    for port in $PORTS; do
        if runs "$port"; then kill "$(pid_of "$port")"; fi
    done
    rm -rf "$DIR"
    exit 0
fi

SERVER=$(tests/scripts/servers.sh one) || exit 1
taken=$(for port in $PORTS; do is_taken "$port" && printf ' %s' "$port"; done)
if [ -n "$taken" ]; then
    say "another program listens on 127.0.0.1, port$taken: end it, or use its servers; nothing was started"
    exit 1
fi
for port in $PORTS; do
    runs "$port" && continue
    start "$port"
    open "$port" || say "port $port: it could not be opened, and votes max_ttl (10 s) after a client first wants a lock"
done
instances=$(printf '127.0.0.1:%s ' $PORTS | sed 's/ $//')
cat <<EOF
five of $("$SERVER" --version | sed 's/^\([A-Za-z]*\) server v=\([0-9.]*\).*/\1 \2/') answer; \`make down\` ends them

  export REDQUORUM_INSTANCES='$instances'

They vote at once, for a max_ttl of 10 s, the default: they are new, so no lock was held on them.
EOF
