#!/bin/sh
# Before removal ("remove" in a .deb, 0 in a .rpm) or upgrade (anything else).
set -e

case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl stop relay.service 'relay@*.service' || true
	fi
	if command -v systemctl >/dev/null; then
		systemctl --no-reload disable relay.service 'relay@.service' >/dev/null 2>&1 || true
	fi
	;;
esac
exit 0
