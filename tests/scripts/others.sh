#!/bin/sh
# Installs etcd, ZooKeeper and PostgreSQL for `make compare-others`, where that takes no password. No service is left running.
# What cannot be installed is left out there, so this never fails.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/scripts/lib.sh

have etcd || apt_install etcd-server
[ -e /usr/share/java/zookeeper.jar ] || apt_install zookeeper default-jre-headless
have java || apt_install default-jre-headless
have etcd || say "There is no etcd here."
[ -e /usr/share/java/zookeeper.jar ] && have java || say "There is no ZooKeeper here."
exit 0
