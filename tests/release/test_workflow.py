"""Workflows call targets of the Makefile and test every Python version that the project claims."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yaml"


@pytest.fixture(scope="module")
def jobs():
    return yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]


def commands(jobs):
    return [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
class TestWorkflow:
    @pytest.fixture
    def text(self, path):
        return path.read_text(encoding="utf-8")

    @pytest.fixture
    def steps(self, text):
        return [step for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]

    def test_make_commands_are_targets(self, steps):
        targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        called = {step["run"].split()[1] for step in steps if step.get("run", "").startswith("make ")}
        assert called
        assert called <= targets

    def test_actions_are_pinned_by_digest_beside_their_version(self, text, steps):
        used = re.findall(r"uses: (\S+)@(\S+) # v[\d.]+$", text, re.MULTILINE)
        assert len(used) == sum("uses" in step for step in steps)
        assert all(re.fullmatch(r"[0-9a-f]{40}", digest) for _, digest in used)
        assert len({*used}) == len({name for name, _ in used}), "one version of each action"

    def test_no_step_keeps_a_token_and_none_has_more_rights_than_it_needs(self, text, steps):
        checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout")]
        assert all(step["with"] == {"persist-credentials": False} for step in checkouts)
        workflow = yaml.safe_load(text)
        assert workflow["permissions"] in ({}, {"contents": "read"})
        writing = {job for job, content in workflow["jobs"].items() if "write" in str(content.get("permissions", ""))}
        assert writing == ({"packages", "image", "site"} if "v*" in text else set())


def test_every_claimed_python_is_tested(jobs):
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    claimed = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    assert jobs["test"]["strategy"]["matrix"]["python"] == claimed


def test_the_image_that_is_built_is_that_of_the_project(jobs):
    build = next(command for command in commands(jobs) if command.startswith("docker build"))
    assert (ROOT / re.search(r"-f (\S+)", build)[1]).is_file()
    arguments = set(re.findall(r"--build-arg (\w+)=", build))
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert arguments <= set(re.findall(r"^ARG (\w+)", dockerfile, re.MULTILINE))


def test_released_images_have_a_base_by_digest_and_one_of_them_no_root():
    text = (ROOT / ".github" / "workflows" / "release.yaml").read_text(encoding="utf-8")
    runs = commands({"image": yaml.safe_load(text)["jobs"]["image"]})
    built = [run for run in runs if run.startswith("docker build")]
    assert "RepoDigests" in runs[0]
    assert all('BASE_IMAGE="$BASE_IMAGE"' in run for run in built)
    assert sum(bool(re.search(r"IMAGE_USER=[1-9]\d*", run)) for run in built) == 1
    arguments = set(re.findall(r"--build-arg (\w+)=", " ".join(built)))
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    final = dockerfile.rpartition("\nFROM ")[2]
    assert arguments <= set(re.findall(r"^ARG (\w+)", final, re.MULTILINE)), "the final stage declares these arguments"


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yaml")), ids=lambda path: path.stem
)
def test_issue_forms_ask_something(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= form.keys()
    identifiers = [field["id"] for field in form["body"]]
    assert len(set(identifiers)) == len(identifiers) > 0


def test_the_citation_names_this_version():
    about = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert f'version = "{about["version"]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert {"title", "authors", "license", "message", "cff-version"} <= about.keys()
