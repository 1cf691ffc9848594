#!/usr/bin/env bash
# Builds a replacement for the image python:3.X-slim when no image can be pulled: this machine's Debian release, fresh
# from its packages, with a copy of this machine's Python. Needs root, buildah and mmdebstrap.
# Usage: docker/check_base.sh IMAGE
set -euo pipefail

image=$1
python=${PYTHON:-python3}
# shellcheck source=/dev/null
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
sources=/etc/apt/sources.list.d/debian.sources
[ -f "$sources" ] || sources=/etc/apt/sources.list
read -r prefix version < <("$python" -c 'import sys; print(sys.base_prefix, "%d.%d" % sys.version_info[:2])')

packages=ca-certificates,netbase,tzdata
if [ "$prefix" = /usr ]; then
    packages+=,python3,python3-dev,python3-venv # Debian's Python is installed from packages
else # the libraries that CPython's modules are linked against
    packages+=,libbz2-1.0,libexpat1,libffi8,liblzma5,libncursesw6,libreadline8,libsqlite3-0,libssl3,libuuid1,zlib1g
fi

container=$(buildah from scratch)
trap 'buildah rm "$container" >/dev/null' EXIT
root=$(buildah mount "$container")
in_root() { env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" "$@"; }

mmdebstrap --quiet --mode=root --variant=minbase --include="$packages" \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' "$suite" "$root" "$sources"
if [ "$prefix" = /usr ]; then
    ln -s /usr/bin/python3 "$root/usr/local/bin/python"
else
    shared=$(cd "$prefix" && find lib -maxdepth 1 -name 'libpython*.so*')
    # shellcheck disable=SC2086  # one word per library
    tar -C "$prefix" -c --exclude=__pycache__ --exclude="lib/python$version/site-packages/*" \
        --exclude="lib/python$version/test" --exclude="lib/python$version/config-*" \
        "bin/python$version" "include/python$version" "lib/python$version" $shared |
        tar -C "$root/usr/local" -x --no-same-owner
    ln -s "python$version" "$root/usr/local/bin/python3"
    ln -s "python$version" "$root/usr/local/bin/python"
    in_root /sbin/ldconfig
fi
# Certificate authorities that this machine trusts, for its package index.
find /usr/local/share/ca-certificates -name '*.crt' -exec cp -t "$root/usr/local/share/ca-certificates" {} +
in_root update-ca-certificates >/dev/null 2>&1
in_root apt-get clean
rm -rf "$root"/var/lib/apt/lists/*
in_root python -c 'import bz2, ctypes, ensurepip, lzma, sqlite3, ssl, venv, zlib'

buildah umount "$container" >/dev/null
buildah config --env PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --env LANG=C.UTF-8 --cmd python "$container"
buildah commit --quiet "$container" "$image" >/dev/null
