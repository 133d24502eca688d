#!/bin/sh
# After installation or upgrade. $1 is "configure" with $2 the old version in a
# .deb, and the number of installed versions in a .rpm. Nothing gets started that
# did not run before: a relay needs a configuration first.
set -e

# systemd's own tools know the files that the package brought. Where they are
# missing, or cannot work (a root without /proc), the same is done by hand.
if ! systemd-sysusers relay.conf 2>/dev/null && ! id relay >/dev/null 2>&1; then
	useradd --system --user-group --home-dir /var/lib/relay --no-create-home \
		--shell /usr/sbin/nologin --comment "Outbox relay" relay
fi
if ! systemd-tmpfiles --create relay.conf 2>/dev/null; then
	install -d -m 0750 -o root -g relay /etc/relay
	install -d -m 0700 -o root -g root /etc/credstore
	install -d -m 2770 -o relay -g relay /var/lib/relay
fi

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	if [ "$1" = 2 ] || { [ "$1" = configure ] && [ -n "$2" ]; }; then
		# What runs goes on with the new version; what is stopped stays stopped.
		systemctl try-restart relay.service 'relay@*.service' || true
	fi
fi
exit 0
