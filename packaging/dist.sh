#!/usr/bin/env bash
# Writes the release files to the directory given: for each architecture a static
# binary, a .deb, a .rpm and a bill of materials (CycloneDX); one OCI image for
# all; SHA256SUMS. The same commit and the same Go give the same bytes. Run by make
# at the top of the source tree.
#
# RELEASE, COMMIT and SOURCE_DATE_EPOCH come from git unless they are set.
set -euo pipefail
umask 022
export LC_ALL=C TZ=UTC CGO_ENABLED=0 GOFLAGS=-buildvcs=false GO=${GO:-go}

out=${1:?usage: dist.sh DIRECTORY}
arches=(amd64 arm64)
COMMIT=${COMMIT:-$(git rev-parse --short=12 HEAD)}
# A release is a commit tagged vX.Y.Z; any other is a development version.
if [ -z "${RELEASE:-}" ]; then
	tag=$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null || echo "v0.0.0-dev+$COMMIT")
	RELEASE=${tag#v}
fi
export RELEASE SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

tool() { "$GO" tool -modfile=packaging/go.mod "$@"; }

# binary ARCH FILE builds the relay.
binary() {
	GOOS=linux GOARCH=$1 "$GO" build -trimpath -o "$2" \
		-ldflags "-s -w -buildid= -X main.version=$RELEASE -X main.commit=$COMMIT" ./cmd/relay
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out"/relay[-_]* "$out"/SHA256SUMS

native=$work/relay-native
binary "$("$GO" env GOHOSTARCH)" "$native"
(cd packaging && "$GO" build -o "$work/" ./notices ./image)

images=()
for arch in "${arches[@]}"; do
	name=$out/relay-$RELEASE-linux-$arch
	binary "$arch" "$name"
	images+=("$arch=$name")
	tool cyclonedx-gomod bin -json -std -noserial -notimestamp -version "v$RELEASE" -output "$name.cdx.json" "$name"
	GOOS=linux GOARCH=$arch "$work/notices" ./cmd/relay >"$work/NOTICES"
	for format in deb rpm; do
		stage=$work/$arch-$format
		zsh=share/zsh/site-functions
		[ $format = rpm ] || zsh=share/zsh/vendor-completions
		DESTDIR=$stage PREFIX=/usr BINARY=$name NATIVE=$native ZSHDIR=$zsh packaging/install.sh
		install -m 644 "$work/NOTICES" "$stage/usr/share/doc/relay/NOTICES"
		find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
		ARCH=$arch STAGE=$stage tool nfpm package --config packaging/nfpm.yaml --packager $format --target "$out/" >/dev/null
	done
done
"$work/image" -o "$out/relay-$RELEASE-oci.tar" -version "$RELEASE" -revision "$COMMIT" -epoch "$SOURCE_DATE_EPOCH" "${images[@]}"
(cd "$out" && sha256sum relay[-_]* >SHA256SUMS && cat SHA256SUMS)
