#!/bin/sh
# Installs the relay below $DESTDIR$PREFIX, or with --remove takes away what an
# installation wrote there. Run by make at the top of the source tree.
#
# BINARY is what gets installed; NATIVE is a relay that runs on this machine and
# prints the man pages and completions. ZSHDIR is where zsh looks for completions,
# below PREFIX.
set -eu
umask 022

: "${DESTDIR=}" "${PREFIX:=/usr/local}" "${BINARY:=bin/relay}" "${NATIVE:=$BINARY}" "${ZSHDIR:=share/zsh/site-functions}"
root=$DESTDIR$PREFIX
doc=$root/share/doc/relay
remove=
[ "${1-}" = --remove ] && remove=yes

# put MODE SOURCE TARGET copies one file, or removes TARGET.
put() {
	if [ "$remove" ]; then
		rm -f "$3"
		return
	fi
	mkdir -p "$(dirname "$3")"
	install -m "$1" "$2" "$3"
}

# made TARGET COMMAND... writes the output of a command, or removes TARGET.
made() {
	target=$1
	shift
	if [ "$remove" ]; then
		rm -f "$target"
		return
	fi
	mkdir -p "$(dirname "$target")"
	"$@" >"$target"
	chmod 644 "$target"
}

# unit FILE prints a unit with the paths of this prefix.
unit() {
	sed -e "s#/usr/bin/relay#$PREFIX/bin/relay#" -e "s#/usr/share/doc/#$PREFIX/share/doc/#" "$1"
}

manpages() {
	if [ "$remove" ]; then
		rm -f "$root"/share/man/man1/relay.1.gz "$root"/share/man/man1/relay-*.1.gz
		return
	fi
	pages=$(mktemp -d)
	"$NATIVE" man "$pages" >/dev/null
	for page in "$pages"/*.1; do
		made "$root/share/man/man1/$(basename "$page").gz" gzip -9nc "$page"
	done
	rm -r "$pages"
}

put 755 "$BINARY" "$root/bin/relay"
for f in relay.service relay@.service; do
	made "$root/lib/systemd/system/$f" unit "systemd/$f"
done
put 644 systemd/sysusers.d/relay.conf "$root/lib/sysusers.d/relay.conf"
put 644 systemd/tmpfiles.d/relay.conf "$root/lib/tmpfiles.d/relay.conf"
manpages
made "$root/share/bash-completion/completions/relay" "$NATIVE" completion bash
made "$root/$ZSHDIR/_relay" "$NATIVE" completion zsh
made "$root/share/fish/vendor_completions.d/relay.fish" "$NATIVE" completion fish
put 644 config.example.toml "$root/share/relay/config.example.toml"
for f in README.md ARCHITECTURE.md CHANGELOG.md LICENSE SECURITY.md $(find docs -type f ! -name '*_test.go' | LC_ALL=C sort); do
	put 644 "$f" "$doc/$f"
done
[ -z "$remove" ] || find "$doc" "$root/share/relay" -type d -empty -delete 2>/dev/null || true
