#!/bin/bash
# Tries the unit in a booted system and writes a line for each fact to
# /results/facts: "ok FACT", or "FAIL FACT". An application has the database: user
# and group app, directory /var/lib/app.
set -u
export HOME=/root
db=/var/lib/app/app.db
exec >/results/log 2>&1 </dev/null

fact() { # fact NAME COMMAND...
	local name=$1
	shift
	if "$@"; then echo "ok $name"; else echo "FAIL $name"; fi >>/results/facts
}
unit() { systemctl show --property="$1" --value relay; }
as_app() { setpriv --reuid=app --regid=app --init-groups -- "$@"; }
within() { # within SECONDS COMMAND...: it becomes true
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		((SECONDS < end)) || return 1
		sleep 0.1
	done
}
is() { [ "$($1)" = "$2" ]; }
mode() { stat -c '%U:%G %a' "$1"; }
signal() { # signal NAME: to the relay, if it runs
	local pid
	pid=$(unit MainPID)
	[ "$pid" -gt 0 ] && kill -s "$1" "$pid"
}
enqueue() {
	echo '{"specversion":"1.0","id":"'"$1"'","source":"/probe","type":"probe"}' |
		as_app relay enqueue --db $db --tenant t --stream s >&2
}
pending() { as_app relay status --db $db --json | grep -o '"pending": *[0-9]*' | head -n 1 | tr -dc 0-9; }
restarted() { [ "$(unit NRestarts)" -gt "$1" ] && [ "$(unit ActiveState)" = active ]; }
in_sandbox() { nsenter --target "$(unit MainPID)" --mount -- "$@"; }
status_field() { awk -v f="$1:" '$1 == f { print $2 }' "/proc/$(unit MainPID)/status"; }
log_has() { grep -q "$1" /results/relay.log; }

# Whatever happens, the test need not wait longer than this script runs.
trap 'echo done >>/results/facts' EXIT

systemd-sysusers relay.conf
printf 'u app - "App" /var/lib/app\n' >/usr/lib/sysusers.d/app.conf
systemd-sysusers app.conf
systemd-tmpfiles --create relay.conf
install -d -m 2770 -o app -g app /var/lib/app
as_app relay migrate --create --db $db
chmod 0660 $db
printf secret >/etc/credstore/relay.nats.password
chmod 0600 /etc/credstore/relay.nats.password
cat >/etc/relay/relay.toml <<'X'
[outbox]
path = "/var/lib/app/app.db"
[nats]
urls = ["nats://127.0.0.1:4222"]
user = "relay"
password_file = "${CREDENTIALS_DIRECTORY}/nats.password"
[[route]]
subject = "probe.{type}"
X
mkdir -p /etc/systemd/system/relay.service.d
cat >/etc/systemd/system/relay.service.d/probe.conf <<'X'
[Service]
SupplementaryGroups=app
ReadWritePaths=/var/lib/app
StandardError=append:/results/relay.log
WatchdogSec=3s
RestartSec=200ms
X
systemctl daemon-reload

fact "it becomes ready in its sandbox although the broker is down" systemctl start relay
systemctl --no-pager status relay
[ "$(unit ActiveState)" = active ] || exit 1
fact "the relay makes the side files for the application's group" is "mode $db-wal" "relay:app 660"
fact "the application enqueues beside it" enqueue one
fact "the event waits" is pending 1
fact "system calls are filtered" is "status_field Seccomp" 2
fact "it has no capabilities" is "status_field CapEff" 0000000000000000
fact "it cannot gain privileges" is "status_field NoNewPrivs" 1
fact "it cannot write the system" in_sandbox sh -c '! touch /usr/probe 2>/dev/null && ! touch /etc/probe 2>/dev/null && ! touch /var/lib/probe 2>/dev/null'
fact "it can write the database's directory" in_sandbox sh -c 'touch /var/lib/app/probe && rm /var/lib/app/probe'
fact "it reads its credential" in_sandbox grep -q secret /run/credentials/relay.service/nats.password
fact "a reload is answered" systemctl reload relay
fact "the reload is logged" within 5 log_has "configuration reloaded"

signal STOP
fact "the watchdog ends a hanging relay, and it starts again" within 30 restarted 0
before=$(unit NRestarts)
signal KILL
fact "a killed relay starts again" within 10 restarted "$before"
fact "it still has the event" is pending 1

systemctl stop relay
fact "a stop ends without an error" is "unit Result" success
fact "nothing is left claimed" is pending 1
fact "the last one to close removes the side files" test ! -e $db-wal
echo 'bogus = 1' >>/etc/relay/relay.toml
systemctl start relay
sleep 1
fact "a wrong configuration ends with status 2" is "unit ExecMainStatus" 2
fact "a wrong configuration is not started again" is "unit ActiveState" failed
