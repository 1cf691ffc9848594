#!/bin/sh
# Prints the size of the installed image, and what takes up the space. Runs inside it:
#     docker run --rm -i graphbench sh < docker/size.sh
packages=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
{
    echo "MB where"
    printf '%s image\n' "$(du --one-file-system --summarize --block-size=1000000 / 2>/dev/null | cut -f 1)"
    printf '%s compiled Python, for a quick start\n' "$(find "$packages" -name '*.pyc' -print0 |
        du --files0-from=- --total --block-size=1000000 | tail -n 1 | cut -f 1)"
    du --summarize --block-size=1000000 "$packages"/* | sort --numeric-sort --reverse | sed "s|$packages/||; 15q"
} | awk '{ first = $1; $1 = ""; printf "%6s %s\n", first, $0 }'
