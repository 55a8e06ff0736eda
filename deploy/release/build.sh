#!/usr/bin/env bash
# Builds what a release consists of into dist/: wheel, sdist, chart, image context, a bill of materials, checksums. Then
# installs the wheel in an empty environment and runs the demo. `make release` sets up what it needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bill=${1:?usage: deploy/release/build.sh PATH_OF_CYCLONEDX_PY}
version=$(.venv/bin/python -c 'import cadre; print(cadre.__version__)')
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH=$epoch
empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT

# The same files and the same version make the same bytes.
pack() {
    local into=$1; shift
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" --exclude=__pycache__ --exclude=.cadre -cf - "$@" |
        gzip -n > "dist/$into"
}

rm -rf dist
.venv/bin/python -m hatchling build -t sdist -t wheel -d dist
pack "cadre-chart-$version.tgz" -C deploy/helm cadre
pack "cadre-image-$version.tar.gz" deploy/Dockerfile deploy/Dockerfile.dockerignore pyproject.toml README.md LICENSE \
    requirements.lock requirements-build.lock requirements-image.lock prompts teams shared services

.venv/bin/python -m venv "$empty/venv"
"$empty/venv/bin/python" -m pip install --quiet --require-hashes -r requirements.lock
"$empty/venv/bin/python" -m pip install --quiet --no-deps dist/*.whl
"$bill" environment --output-reproducible --output-format JSON --output-file "dist/cadre-$version.cdx.json" "$empty/venv/bin/python"
(cd dist && sha256sum -- * > SHA256SUMS)

cd "$empty"
test "$(venv/bin/cadre --version)" = "cadre $version"
venv/bin/cadre up --demo --run
echo "release: cadre $version is in dist/" >&2
