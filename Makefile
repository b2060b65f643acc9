# `make` lists what there is. Everything runs from a fresh clone; what is missing is installed or named.

CARGO ?= cargo
# `YES=1`: install what needs root with sudo, without a question.
export YES
WORLD = $(CARGO) test --release --test world
NAMES = sed -n '/^\[features\]/,/^\[[^f]/s/^\([a-z][a-z0-9-]*\) *=.*/\1/p' Cargo.toml | grep -vx default
EXAMPLES = $(basename $(notdir $(wildcard examples/services/src/bin/*.rs)))

.DEFAULT_GOAL := help
.PHONY: help demo up down examples test test-all verify fix sim bench performance plots compare-others admission-price bench-contended bench-leases bench-shared keep bench-tokens soak drill keep-drill outage docs-site servers databases

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: servers ## lock and release over five real servers
	$(CARGO) run --release --package redquorum-quickstart

up: ## start five servers on 127.0.0.1:7101 to 7105 and leave them running
	@tests/scripts/up.sh

down: ## end what `make up` has started
	@tests/scripts/up.sh down

examples: servers databases ## show what goes wrong without a lock: duplicates, lost updates, late writes (EXAMPLE=name)
	$(CARGO) build --package redquorum-examples
	set -e; for example in $(or $(EXAMPLE),$(EXAMPLES)); do \
		echo; echo "-- $$example"; \
		$(CARGO) run --quiet --package redquorum-examples --bin $$example; \
	done

test: servers ## run what proves the promises, on one kind of server; four minutes once it is built
	@tests/scripts/test.sh

test-all: servers databases ## run the rest: the other servers (Redis 7, 8, Valkey 8.1, 9; at most KINDS=N), databases, drills, benches
	@KINDS=$(KINDS) tests/scripts/test.sh rest

verify: ## check format, lints, every feature alone and the documentation; changes nothing
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings
	set -e; for feature in '' $$($(NAMES)); do \
		echo "only the feature '$$feature'"; \
		$(CARGO) check --quiet --package redquorum --no-default-features --features "$$feature"; \
	done
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --all-features

fix: ## format, and apply what the lints propose
	$(CARGO) clippy --workspace --all-targets --all-features --fix --allow-dirty --allow-staged
	$(CARGO) fmt --all

sim: ## simulate: fixed seeds, planted bugs, the model (SEEDS=n or SECONDS=n, [START=s], REPLAY=.., PLANTED=pinned|all|uncaught|none|name, PAGE=yes, MODEL=all)
ifdef MODEL
	$(CARGO) test --release --package redquorum-model -- --include-ignored
else ifdef REPLAY
	$(WORLD) -- --replay '$(REPLAY)' $(if $(PLANTED),--only $(PLANTED))
else ifeq ($(PLANTED),pinned)
	$(WORLD) -- --pinned
else ifeq ($(PLANTED),uncaught)
	$(WORLD) -- --planted --uncaught
else ifneq ($(filter-out none,$(PLANTED)),)
	$(WORLD) -- --planted $(if $(filter-out all,$(PLANTED)),--only $(PLANTED))
else ifdef PAGE
	$(WORLD) -- --page
else ifdef SECONDS
	$(WORLD) -- --seconds $(SECONDS) $(if $(START),--start $(START))
else ifdef SEEDS
	$(WORLD) -- --seeds $(SEEDS) $(if $(START),--start $(START))
else
	rm -rf $${CARGO_TARGET_DIR:-target}/release/deps/searched
	$(CARGO) test --release --package redquorum-model
	$(if $(PLANTED),,$(CARGO) test --release --test mirror -- --include-ignored)
	$(WORLD)
	$(if $(PLANTED),,$(WORLD) -- --pinned)
endif

bench: servers ## compare with the least that a lock costs, and with another crate (BENCH_ROUNDS=N)
	$(CARGO) run --release --package redquorum-bench

performance: servers ## measure what docs/performance.md tells, and write its tables and plots (BENCH_ROUNDS=N; 5 take some 15 minutes)
	$(CARGO) run --release --package redquorum-bench
	$(MAKE) --no-print-directory keep MEASURED=results KEPT=performance

plots: ## write the tables and plots of the pages from what was measured last
	$(CARGO) run --release --package redquorum-bench --bin figures

compare-others: servers databases ## measure etcd, ZooKeeper and PostgreSQL beside, and write the table of docs/comparison.md (two minutes)
	@tests/scripts/others.sh
	$(CARGO) run --release --package redquorum-bench --bin others
	$(MAKE) --no-print-directory keep MEASURED=others

admission-price: servers ## measure what admission costs in availability, and write docs/admission-price.md (seven minutes)
	$(CARGO) run --release --package redquorum-bench --bin admission
	$(MAKE) --no-print-directory keep MEASURED=admission

bench-contended: servers ## measure many waiters for one lock, and write the table of docs/comparison.md (BENCH_ROUNDS=N)
	$(CARGO) run --release --package redquorum-bench --bin contended
	$(MAKE) --no-print-directory keep MEASURED=contended

bench-shared: servers ## measure read-write locks, semaphores and elections, and write the tables of docs/comparison.md (four minutes)
	$(CARGO) run --release --package redquorum-bench --bin shared-locks
	$(MAKE) --no-print-directory keep MEASURED=shared

keep: # what was measured last, beside the pages
	mkdir -p docs/results && cp $${CARGO_TARGET_DIR:-target}/bench/$(MEASURED).json docs/results/$(or $(KEPT),$(MEASURED)).json
	$(MAKE) --no-print-directory plots

bench-leases: servers ## hold 100 000 leases for three ttls and say what that costs
	$(CARGO) run --release --package redquorum-bench --bin leases

bench-tokens: servers ## say what kept fencing tokens cost: bytes of each, and ten million old ones (CLIENTS=N)
	$(CARGO) run --release --package redquorum-bench --bin tokens -- --clients $(or $(CLIENTS),1)

soak: servers ## lock new names for an hour and say whether memory stays flat (MINUTES=N)
	$(CARGO) run --release --package redquorum-bench --bin soak -- --minutes $(or $(MINUTES),60)

# A short one is built sooner than an optimized program.
drill: DRILL = $${CARGO_TARGET_DIR:-target}/$(if $(QUICK),debug,release)/drill
drill: servers ## break real instances in Docker while clients lock (QUICK=1, SCENARIO=name,.. SERVER=redis|valkey, ARGS=..)
	@docker version >/dev/null 2>&1 || { echo "no Docker engine answers: start it, or join the group docker"; exit 1; }
	$(CARGO) build $(if $(QUICK),,--release) --package redquorum-drill
	docker/image/build.sh $(DRILL)
	$(DRILL) run $(if $(QUICK),--quick,--controls) \
		$(if $(SCENARIO),--scenario $(SCENARIO)) $(if $(SERVER),--server $(SERVER)) $(ARGS)

keep-drill: ## keep what the last drill reported, and write its table into docs/drills.md (KEPT=mixture: of that scenario alone)
	$(CARGO) run --release --package redquorum-bench --bin drilled -- $(or $(KEPT),drill)
	$(MAKE) --no-print-directory keep MEASURED=$(or $(KEPT),drill)

outage: servers ## kill real servers under load before a real Prometheus, check the dashboard's and alerts' queries, draw docs/outage.svg
	$(CARGO) run --package redquorum-observability --bin outage

docs-site: ## build the pages of docs/ as a site with search, in target/book; installs mdbook if it is missing
	@command -v mdbook >/dev/null || $(CARGO) install mdbook --version '^0.5' --locked
	mdbook build docs

servers: ## make sure that a Redis and a Valkey server are here
	@tests/scripts/servers.sh

databases: ## install PostgreSQL and MariaDB for the examples and their tests where that can be done
	@tests/scripts/databases.sh
