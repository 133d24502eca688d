#!/bin/bash
# boot.sh RESULTS RELAY UNITS: boots systemd in namespaces of its own, on a copy of
# this machine's file system that vanishes with it, installs the relay there and
# runs probe.sh, which writes into the directory RESULTS. Run as root by
# "unshare --mount --pid --fork": nothing outside of the namespaces changes.
set -euo pipefail
results=$1 relay=$2 units=$3
here=$(cd "$(dirname "$0")" && pwd)

mount --make-rprivate /
base=$(mktemp -d)
mount -t tmpfs tmpfs "$base"
mkdir "$base/upper" "$base/work" "$base/root"
root=$base/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" "$root"

install -m 755 "$relay" "$root/usr/bin/relay"
install -m 644 "$units"/relay*.service "$root/etc/systemd/system/"
install -m 644 -D "$units/sysusers.d/relay.conf" "$root/usr/lib/sysusers.d/relay.conf"
install -m 644 -D "$units/tmpfiles.d/relay.conf" "$root/usr/lib/tmpfiles.d/relay.conf"
install -m 755 "$here/probe.sh" "$root/usr/bin/relay-probe"
mkdir -p "$root/results" "$root/old"

# Nothing of this machine's own services starts: the targets that a service needs
# are empty, and the only one wanted is the probe.
units_dir=$root/etc/systemd/system
for target in sysinit basic shutdown network-online nss-lookup time-sync; do
	printf '[Unit]\nDefaultDependencies=no\n' >"$units_dir/$target.target"
done
printf '[Unit]\nDefaultDependencies=no\nWants=probe.service\nAllowIsolate=yes\n' >"$units_dir/probe.target"
printf '[Service]\nType=oneshot\nExecStart=/usr/bin/relay-probe\n' >"$units_dir/probe.service"

mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null:3 zero:5 full:7 random:8 urandom:9; do
	mknod -m 666 "$root/dev/${device%:*}" c 1 "${device#*:}"
done
mknod -m 666 "$root/dev/tty" c 5 0
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount --bind "$results" "$root/results"

cd "$root"
pivot_root . old
umount -l /old
mount --make-rshared / # credentials reach services by mount propagation
exec env -i container=test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	/lib/systemd/systemd --system --unit=probe.target --log-target=console --show-status=no
