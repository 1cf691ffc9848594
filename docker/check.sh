#!/usr/bin/env bash
# Builds and tries the image without a Docker engine. Needs root on Debian, buildah and mmdebstrap.
#     docker/check.sh            one epoch of the quickstart, a few minutes once the image is built
#     docker/check.sh --full     the whole quickstart, then `graphbench test`
# BASE_IMAGE       the base image; by default built from this machine's Debian and PYTHON (python3)
# TORCH_VARIANT, TORCH_INDEX_URL   as in docker/Dockerfile; cpu by default
# The image is kept as localhost/graphbench; `buildah rmi --all` removes it and the cache for the next build.
set -euo pipefail
cd "$(dirname "$0")/.."
image=localhost/graphbench
quickstart=(fit --config quickstart)
short=()
[ "${1:-}" = --full ] || short=(--trainer.max_epochs 1)

say() { printf '== %s\n' "$*"; }
fail() { printf 'docker/check.sh: %s\n' "$*" >&2 && exit 1; }
for tool in buildah mmdebstrap; do
    command -v "$tool" >/dev/null || fail "$tool not found: apt-get install buildah mmdebstrap"
done
[ "$(id -u)" = 0 ] || fail "must be root, to create and mount file systems"

work=$(mktemp -d)
cleanup() {
    [ -z "${started:-}" ] || kill -KILL "$started" 2>/dev/null || true
    [ -z "${container:-}" ] || buildah rm "$container" >/dev/null
    rm -rf "$work"
}
trap cleanup EXIT

# --- build
pip_settings=(--volume "$work/pip.conf:/etc/pip.conf:ro") # the build uses this machine's pip settings
for folder in $("${PYTHON:-python3}" docker/check_pip.py "$work/pip.conf"); do
    pip_settings+=(--volume "$folder:$folder:ro")
done
if [ -z "${BASE_IMAGE:-}" ]; then
    BASE_IMAGE=localhost/graphbench-base
    if ! buildah inspect --type image "$BASE_IMAGE" >/dev/null 2>&1; then
        say "building a base image"
        docker/check_base.sh "$BASE_IMAGE"
    fi
fi
build() { # build LOG TAG OPTION... CONTEXT
    local log=$1 tag=$2
    shift 2
    buildah bud --isolation chroot --network host --layers "${pip_settings[@]}" --tag "$tag" "$@" >"$log" 2>&1 ||
        { tail -n 30 "$log" >&2 && fail "the build of $tag failed"; }
}
arguments=(--build-arg "BASE_IMAGE=$BASE_IMAGE" --build-arg "TORCH_VARIANT=${TORCH_VARIANT:-cpu}")
[ -z "${TORCH_INDEX_URL:-}" ] || arguments+=(--build-arg "TORCH_INDEX_URL=$TORCH_INDEX_URL")
say "building $image"
SECONDS=0
build "$work/build.log" "$image" "${arguments[@]}" --file docker/Dockerfile .
say "built in $SECONDS s, $(grep -c 'Using cache' "$work/build.log") steps cached by earlier builds"

mkdir "$work/changed"
tar -c LICENSE README.md configs constraints.txt docker graphbench plugins pyproject.toml .dockerignore | tar -C "$work/changed" -x
echo "# changed" >>"$work/changed/graphbench/__init__.py"
SECONDS=0
build "$work/rebuild.log" "$image-changed" "${arguments[@]}" --file docker/Dockerfile "$work/changed"
say "built again in $SECONDS s after a source changed"
! grep -q "^Collecting rdkit" "$work/rebuild.log" || fail "a changed source made the build install the dependencies again"
buildah rmi "$image-changed" >/dev/null

# --- run
configured() { buildah inspect --type image --format "{{range .OCIv1.Config.$1}}{{println .}}{{end}}" "$image" | sed '/^$/d'; }
container=$(buildah from --pull-never "$image")
root=$(buildah mount "$container")
mapfile -t entrypoint < <(configured Entrypoint)
mapfile -t environment < <(configured Env)
mkdir -p "$work"/volumes/{runs,data,store,plugins} # as root, like volumes that the engine creates
chmod 755 "$work" "$work/volumes"
start=(docker/check_run.sh "$root" "$work/volumes")
image_command=(-i "${environment[@]}" "${entrypoint[@]}") # `env -i`: without this machine's environment
run() { "${start[@]}" "$1" "${image_command[@]}" "${@:2}"; } # run UID:GID ARGUMENT..., as after `docker run graphbench`
train() { # train ARGUMENT...: as `run 0:0`; stderr must contain only the lines of a training command
    run 0:0 "$@" 2>"$work/stderr" || { cat "$work/stderr" >&2 && fail "failed: $*"; }
    cat "$work/stderr" >&2
    "${PYTHON:-python3}" docker/check_stderr.py "$work/stderr" || fail "unexpected lines on stderr: $*"
}

say "list"
run 0:0 list --check
run 0:0 pip check
for plugin in plugins/*/; do
    run 0:0 pip show --quiet "graphbench-$(basename "$plugin")" || fail "$plugin is not in the image"
done

say "quickstart, started as root with folders owned by root"
train "${quickstart[@]}" --run runs/quickstart "${short[@]}"
[ ${#short[@]} -gt 0 ] || run 0:0 test --run runs/quickstart
[ "$(stat -c %u "$work/volumes/runs/quickstart/checkpoints/last.ckpt")" = 1000 ] || fail "the run does not belong to user 1000"

say "two steps on the CPU of the models with GPU kernels, and what launches such kernels"
for model in SFT SFiFormer; do
    train "${quickstart[@]}" --model.architecture "$model" --run "runs/$model" --trainer.max_epochs 1 \
        --trainer.limit_train_batches 2 --trainer.limit_val_batches 1
done
run 0:0 python - <docker/check_triton.py

say "docker stop, as a user without a name"
chown 12345:54321 "$work"/volumes/{runs,data,store}
rm -rf "$work"/volumes/store/{*,.locks}
"${start[@]}" 12345:54321 "${image_command[@]}" "${quickstart[@]}" --run runs/stopped \
    --trainer.limit_train_batches 20 >"$work/stopped.log" 2>&1 &
started=$!
for _ in $(seq 900); do # seconds: a busy machine needs minutes for the first epoch
    ! grep -qs "^epoch 1/" "$work/stopped.log" || break
    sleep 1
done
SECONDS=0
kill -TERM "$(pgrep --parent "$started")" # the child of `unshare` is process 1 of its namespace
status=0 && wait "$started" || status=$?
started=
[ "$status" = 143 ] || { cat "$work/stopped.log" >&2 && fail "expected exit status 143 after SIGTERM, got $status"; }
say "stopped $SECONDS s after SIGTERM"
grep "checkpoint written" "$work/stopped.log" || fail "no checkpoint was written on SIGTERM"
run 12345:54321 fit --resume runs/stopped --trainer.max_epochs 3

say "a custom plug-in, mounted"
chmod 1777 "$work/volumes/plugins"
run 0:0 new-plugin my-model --directory /mnt >/dev/null
mounted=("${start[@]}" 12345:54321 -i "${environment[@]}" GRAPHBENCH_PLUGINS=/mnt/graphbench-my-model "${entrypoint[@]}")
"${mounted[@]}" list architectures | grep MyModel
"${mounted[@]}" params --config my-model/nci

say "a custom plug-in, installed by two lines"
printf 'FROM graphbench\nRUN --mount=type=bind,target=/plugin,rw pip install /plugin\n' >"$work/Dockerfile"
build "$work/plugin.log" "$image-mine" --file "$work/Dockerfile" "$work/volumes/plugins/graphbench-my-model"
mine=$(buildah from --pull-never "$image-mine")
docker/check_run.sh "$(buildah mount "$mine")" "$work/volumes" 0:0 "${image_command[@]}" list architectures | grep MyModel
buildah rm "$mine" >/dev/null
buildah rmi "$image-mine" >/dev/null

say "TensorBoard, and the health check of compose.yaml"
"${start[@]}" 0:0 "${image_command[@]}" tensorboard --logdir runs --port 6006 >"$work/tensorboard.log" 2>&1 &
started=$!
health=$(sed -n 's/^ *test: \[CMD, python, -c, "\(.*\)"\]$/\1/p' docker/compose.yaml)
for _ in $(seq 60); do
    ! run 0:0 python -c "$health" 2>/dev/null || break
    sleep 1
done
run 0:0 python -c "$health" || { cat "$work/tensorboard.log" >&2 && fail "TensorBoard does not respond"; }
kill -TERM "$(pgrep --parent "$started")"
wait "$started" || true
started=

say "contents of the image"
for name in gcc g++; do
    run 0:0 sh -c "command -v $name" || fail "the image has no $name, which Triton and torch.compile need"
done
for folder in /root/.cache /var/lib/apt/lists; do
    [ -z "$(ls -A "$root$folder" 2>/dev/null)" ] || fail "the image has a cache: $folder"
done
run 0:0 sh <docker/size.sh
say "all is well"
