#!/bin/sh
# After removal. Configuration, databases and the user stay: an outbox may hold
# events that nobody has sent yet.
set -e

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
case "$1" in
purge) rmdir --ignore-fail-on-non-empty /etc/relay /var/lib/relay 2>/dev/null || true ;;
esac
exit 0
