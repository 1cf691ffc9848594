"""Fetch and push models on the Hugging Face Hub, by names such as `hf:owner/name` or `hf:owner/name@revision`.

Address and user are settings of its client: `HF_ENDPOINT`, `HF_TOKEN`, `hf auth login`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphbench.errors import BadInput, GraphbenchError, MissingExtra

PREFIX = "hf:"
#: The only files fetched from a model: texts, and weights that cannot run code.
FETCHED = ("config.yaml", "model.safetensors", "results.json", "training.json", "README.md")
_NAME = re.compile(r"hf:(?P<name>[\w.-]+/[\w.-]+?)(@(?P<revision>[\w./-]+))?", re.ASCII)


@dataclass(frozen=True)
class HubModel:
    """A model on the Hub: `owner/name`, and a branch, tag or commit; None for the newest."""

    name: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubModel:
        """Parse `hf:owner/name`.

        Examples:
            >>> HubModel.parse("hf:mine/gps-zinc@v2")
            HubModel(name='mine/gps-zinc', revision='v2')
        """
        match = _NAME.fullmatch(text)
        if match is None:
            raise BadInput(f"{text!r} names no model on the Hugging Face Hub; write hf:owner/name, or with @revision.")
        return cls(match["name"], match["revision"])

    def __str__(self) -> str:
        return f"{PREFIX}{self.name}" + (f"@{self.revision}" if self.revision else "")


def is_hub_name(source: object) -> bool:
    """Return whether a source is a name on the Hub.

    Examples:
        >>> is_hub_name("hf:mine/gps"), is_hub_name("runs/gps")
        (True, False)
    """
    return isinstance(source, str) and source.startswith(PREFIX)


def fetch(model: HubModel) -> Path:
    """Fetch the files `FETCHED` of a model into the client's cache if they are missing, and return their folder."""
    options = {"revision": model.revision, "allow_patterns": list(FETCHED), "library_name": "graphbench"}
    client = _client(f"Loading {model}")
    try:
        folder = Path(client.snapshot_download(model.name, **options))
    except Exception as error:  # from any library below the client
        raise _explain(error, f"{model} cannot be loaded") from error
    # Scores, training facts and card are missing if others wrote the model, and are not needed to predict.
    if missing := [name for name in ("config.yaml", "model.safetensors") if not (folder / name).is_file()]:
        raise BadInput(f"{model} is not a model of graphbench: it has no {' and no '.join(missing)}.")
    return folder


def push(folder: Path, model: HubModel, message: str, private: bool) -> str:
    """Upload a folder of `graphbench export` as one commit, and return its address; other files of the model stay.

    A revision of the model is the branch to write. A missing model is created, visible only to its owner if `private`;
    an existing one keeps its visibility.

    Returns:
        The address of the commit.
    """
    api = _client(f"Pushing to {model}").HfApi(library_name="graphbench")
    try:
        api.create_repo(model.name, private=private or None, exist_ok=True)  # None: the account's default
        if model.revision is not None:
            api.create_branch(model.name, branch=model.revision, exist_ok=True)
        commit = api.upload_folder(
            repo_id=model.name, folder_path=folder, revision=model.revision, commit_message=message
        )
    except Exception as error:  # from any library below the client
        raise _explain(error, f"{folder} cannot be pushed to {model}") from error
    return str(commit.commit_url)


def _client(purpose: str) -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingExtra("huggingface_hub", "hub", purpose) from error
    return huggingface_hub


def _explain(error: Exception, failure: str) -> GraphbenchError:
    """Shorten an error of the client to one line, with advice if there is any."""
    from huggingface_hub import errors

    hints: dict[type[BaseException], str] = {
        errors.GatedRepoError: " Ask its owner for access, and log in: hf auth login",
        errors.RepositoryNotFoundError: " There is no model of this name, or it is private: hf auth login",
        errors.RevisionNotFoundError: " There is no such revision.",
        errors.LocalEntryNotFoundError: " It is not in the cache either; check the network.",
    }
    hint = next((text for kind, text in hints.items() if isinstance(error, kind)), "")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return GraphbenchError(f"{failure}: {lines[0] if lines else type(error).__name__}{hint}")
