#!/bin/sh
# Builds the tests and runs their programs side by side: most of them sleep most of the time. `cargo test` runs the
# same ones, each after the other.
#
#   test.sh        all that proves a promise, on one kind of server
#   test.sh rest   the other servers (KINDS=N: so many of them), the examples with databases, the tests of drills, benches
#                  and observability
#
# Goes on after a failure. While it runs it says how far it is, and at its end what took longest.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/scripts/lib.sh

CARGO=${CARGO:-cargo}
LOGS=$PWD/target/tests
THREADS=8 # of a program that sleeps and waits for servers, on two cores
STARTED=$(date +%s)
# Always together: with others, cargo would choose other features of the dependencies, and build them again.
PROVED="--package redquorum --package redquorum-testkit --package redquorum-gathering --package redquorum-examples \
    --package redquorum-quickstart --package redquorum-axum"
export CARGO # a simulator builds copies of the library with it
export CARGO_TERM_COLOR=never
ONE=$(tests/scripts/servers.sh one) || exit 1

elapsed() {
    seconds=$(($(date +%s) - STARTED))
    printf '%d:%02d' $((seconds / 60)) $((seconds % 60))
}

# Builds the tests and examples of these packages and lists them: source, directory of the package, program.
build() {
    $CARGO test "$@" --all-features --no-run --message-format=json-render-diagnostics >"$LOGS/built" || exit 1
    # Of the two fields "test" of an artifact, the profile's says that it is built as one.
    sed -nE '/"overflow_checks":[a-z]*,"test":true|"kind":\["example"\]/s/.*"manifest_path":"([^"]*)\/Cargo.toml".*"src_path":"([^"]*)".*"executable":"([^"]*)".*/\2 \1 \3/p' \
        "$LOGS/built" | sed "s|^$PWD/||" >>"$LOGS/programs"
    [ -s "$LOGS/programs" ] || { say "cargo names no test: has its output changed?"; exit 1; }
    say "  $(elapsed)  built"
}

LONGEST=900 # seconds of a program: a test that hangs fails, and the log names those that ran for over a minute

# run <name> <command>..: what it writes is shown at its end, whole where it failed.
run() {
    name=$1 log=$LOGS/$(printf %s "$1" | tr '/ ,' '---').log
    shift
    if timeout -k 10 $LONGEST "$@" >"$log" 2>&1 </dev/null; then
        text=$(grep -E '^(running [0-9]+ test|test result|skipped)' "$log" || tail -n 1 "$log")
    else
        echo "$name" >>"$LOGS/failed"
        text=$(grep -vE '^test .* \.\.\. ok' "$log"; echo "$name FAILED")
    fi
    printf '     Running %s\n%s\n\n' "$name" "$text"
}

# program <source> [threads] [suffix of its log] [arguments]
program() {
    wanted=$1 threads=${2:-} suffix=${3:-}
    [ $# -lt 3 ] && shift $# || shift 3
    while read -r source dir path; do
        [ "$source" = "$wanted" ] || continue
        (
            cd "$dir" && export CARGO_MANIFEST_DIR="$dir"
            # libtest says how long a test took only where unstable options are allowed. The others are no tests of its.
            options="-Z unstable-options --report-time"
            case $source in
            */tests/* | */src/*) ;;
            tests/world/* | examples/*) options= ;;
            esac
            RUSTC_BOOTSTRAP=1 run "$source$suffix" "$path" $options ${threads:+--test-threads=$threads} "$@"
        )
    done <"$LOGS/programs"
}

# All but those that are named, by the beginning of their source.
others() {
    while read -r other _; do
        for known; do
            case $other in "$known"*) continue 2 ;; esac
        done
        program "$other"
    done <"$LOGS/programs"
}

# They measure how long something takes, who comes first, or how much it takes: nothing runs beside them.
ALONE='floods::
crowd::two_thousand_locks_that_are_wanted_at_once_are_all_acquired
crowd::thousands_who_wait_for_one_lock_all_get_it_and_other_locks_go_on_meanwhile
hung::
memory::
counts::many_tasks_at_once_share_commands
counts::requests_share_commands_again_after_an_instance_was_busy
renewing::leases_that_are_renewed_together_share_commands
loss::a_deleted_lock_is_known_to_be_lost_within_milliseconds
order::a_loop_of_single_tries_gets_a_tenth_of_the_sections_beside_waiters_at_most
views::a_bench_measures'

on_real_servers() {
    skip=$(for name in $ALONE; do echo --skip "$name"; done)
    program tests/redis/main.rs $THREADS "$1" $skip
    program tests/cli/main.rs $THREADS "$1" $skip
}

# On one kind of server: what they measure is the client's.
alone() {
    program tests/redis/main.rs 1 ", alone" $ALONE
    program tests/cli/main.rs 1 ", alone" $ALONE
}

# What stands in a pair of parentheses runs in turn, beside the other pairs.
prove() {
    export REDQUORUM_SERVER="$ONE"
    build $PROVED
    (program tests/admission/main.rs $THREADS) &
    (on_real_servers "") &
    (program tests/runtime/main.rs; program tests/conformance/main.rs; program examples/services/tests/run.rs
        others tests/admission tests/redis tests/cli tests/runtime tests/conformance examples/services/tests/run.rs) &
    (run documentation $CARGO test --doc $PROVED --all-features) &
    wait
    alone
}

prove_rest() {
    build $PROVED
    # By themselves: built together with them, the others would choose other features of the dependencies.
    build --package redquorum-bench --package redquorum-drill --package redquorum-observability
    # Without the one that is tested already.
    tests/scripts/servers.sh all | grep -vxF "$ONE" | head -n "${KINDS:-9}" >"$LOGS/servers"
    while read -r server; do
        version=$("$server" --version | sed 's/^\([A-Za-z]*\) server v=\([0-9.]*\).*/ on \1 \2/')
        export REDQUORUM_SERVER="$server"
        (on_real_servers "$version") &
        (program tests/admission/main.rs $THREADS "$version") &
        (program tests/conformance/main.rs "" "$version") &
        wait
    done <"$LOGS/servers"
    unset REDQUORUM_SERVER
    if command -v promtool >/dev/null; then
        run "alerts of docs/prometheus-rules.yml" promtool test rules docs/prometheus-rules-test.yml
    else
        say "  skipped: the alerts, since there is no promtool (Debian: prometheus)"
    fi
    others tests/ src/ examples/quickstart examples/axum examples/run examples/fencing.rs
}

progress() {
    while sleep 20; do
        say "  $(elapsed)  $(cat "$LOGS"/*.log 2>/dev/null | grep -c '^test .* \.\.\. ') tests have ended"
    done
}

rm -rf "$LOGS" && mkdir -p "$LOGS" || exit 1
progress &
trap 'kill '$!' 2>/dev/null' EXIT
case ${1:-} in
'') (prove) ;;
rest) (prove_rest) ;;
*) say "what is $1? See tests/scripts/test.sh" && exit 2 ;;
esac || exit 1

echo "The slowest:"
grep -hoE '^test .* <[0-9.]+s>' "$LOGS"/*.log | sed -E 's/^test (.*) \.\.\. .*<([0-9.]+)s>$/\2 \1/' | sort -rn |
    head -n 10 | while read -r seconds name; do printf '%9.1f s  %s\n' "$seconds" "$name"; done
passed=$(cat "$LOGS"/*.log | grep -cE '^test .* \.\.\. ok')
if [ -e "$LOGS/failed" ]; then
    echo "FAILED after $(elapsed); $passed tests passed. What each wrote is in target/tests:"
    cat "$LOGS/failed"
    grep -hE '^test .* FAILED' "$LOGS"/*.log
    exit 1
fi
echo "All $passed tests passed in $(elapsed)."
