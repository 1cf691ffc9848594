#!/usr/bin/env bash
# Starts an image's file system like `docker run --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges
# --cap-add CHOWN --cap-add SETGID --cap-add SETUID`, in separate namespaces: the command is process 1 and receives
# signals as it would there. Needs root.
# Usage: docker/check_run.sh ROOT VOLUMES UID:GID COMMAND [ARGUMENT...]
#   ROOT      where the image is mounted
#   VOLUMES   folder whose runs, data and store become those of /workspace, and plugins /mnt
set -euo pipefail
# shellcheck disable=SC2016  # the inner shell expands
exec unshare --mount --pid --fork --kill-child -- bash -euc '
    root=$1 volumes=$2 user=$3
    shift 3
    mount --bind "$root" "$root"
    mount -o remount,bind,ro "$root"
    mount -t proc proc "$root/proc"
    mount -t tmpfs -o nosuid,nodev,noexec tmpfs "$root/tmp"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    for name in runs data store; do mount --bind "$volumes/$name" "$root/workspace/$name"; done
    mount --bind "$volumes/plugins" "$root/mnt"
    allowed=-all,+chown,+setgid,+setuid
    exec chroot "$root" setpriv --reuid "${user%:*}" --regid "${user#*:}" --clear-groups \
        --no-new-privs --inh-caps=-all --bounding-set "$allowed" env --chdir=/workspace "$@"
' bash "$@"
