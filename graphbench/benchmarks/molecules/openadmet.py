"""OpenADMET's blind challenges: measurements from drug discovery programmes, with the organisers' test sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from graphbench.benchmarks.molecules import specs
from graphbench.benchmarks.molecules.own_file import Molecules
from graphbench.benchmarks.molecules.own_splits import SplitKind
from graphbench.data.download import fetch
from graphbench.data.files.foreign import FETCH_AGAIN, foreign
from graphbench.data.files.sharing import write_shared
from graphbench.errors import BadInput, CorruptData, check_choice

Challenge = Literal["expansionrx", "pxr", "antiviral-admet", "antiviral-potency"]


@dataclass(frozen=True)
class _Published:
    """Files of a challenge in its data set on Hugging Face, and their columns.

    Args:
        data_set: name of the data set.
        train, test: file of each part; the same file twice if a column `Set` says Train or Test.
        smiles: column with SMILES, possibly followed by a space and extensions.
        linear: endpoints scored in their unit, such as logarithms.
        logged: endpoints scored as `log10(y + 1)`, and the unit of y.
    """

    data_set: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    smiles: str
    linear: tuple[str, ...]
    logged: Mapping[str, str] = field(default_factory=dict)

    @property
    def endpoints(self) -> tuple[str, ...]:
        return (*self.linear, *self.logged)

    def target(self, endpoint: str) -> str:
        """Return the name of the endpoint as a target."""
        return f"log {endpoint}" if endpoint in self.logged else endpoint

    def unit(self, endpoint: str) -> str:
        """Return the scale of the target."""
        return f"log10(y + 1), y in {self.logged[endpoint]}" if endpoint in self.logged else ""


_ANTIVIRAL = "ASAP_Polaris_OpenADMET_challenge"
_PUBLISHED: dict[str, _Published] = {
    "expansionrx": _Published(
        "openadmet-expansionrx-challenge-data",
        ("expansion_data_train.csv",),
        ("expansion_data_test.csv",),
        "SMILES",
        ("LogD",),
        {
            "KSOL": "µM", "HLM CLint": "mL/min/kg", "MLM CLint": "mL/min/kg",
            "Caco-2 Permeability Papp A>B": "10^-6 cm/s", "Caco-2 Permeability Efflux": "1",
            "MPPB": "% unbound", "MBPB": "% unbound", "MGMB": "% unbound",
        },
    ),
    "pxr": _Published(
        "pxr-challenge-train-test",
        ("pxr-challenge_TRAIN.csv",),
        ("pxr-challenge_TEST_PHASE_1_UNBLINDED.csv", "pxr-challenge_TEST_PHASE_2_UNBLINDED.csv"),
        "SMILES",
        ("pEC50",),
    ),
    "antiviral-admet": _Published(
        _ANTIVIRAL,
        ("ADMET.csv",),
        ("ADMET.csv",),
        "CXSMILES",
        ("LogD",),
        {"KSOL": "µM", "HLM": "µL/min/mg", "MLM": "µL/min/mg", "MDR1-MDCKII": "10^-6 cm/s"},
    ),
    "antiviral-potency": _Published(
        _ANTIVIRAL,
        ("Potency.csv",),
        ("Potency.csv",),
        "CXSMILES",
        ("pIC50 (MERS-CoV Mpro)", "pIC50 (SARS-CoV-2 Mpro)"),
    ),
}  # fmt: skip


class OpenADMET(Molecules):
    """OpenADMET's blind challenges of 2025 and 2026: up to nine endpoints with gaps, and the organisers' test sets.

    Test molecules of `expansionrx` and the antiviral challenges were made later than those of training, and those of
    `pxr` are analogues made after its screen. Validation molecules are cut from training. Endpoints that are not
    logarithms become targets `log10(y + 1)`, with negative y counted as 0, as in the challenges, and are called
    `log KSOL` and so on. `expansionrx` and `pxr` were ranked by the mean over endpoints of the MAE divided by the mean
    deviation of the test values. It is available as the metric RAE (`--model.metrics+=RAE`).

    Args:
        challenge: `expansionrx`: absorption and metabolism of 7,608 molecules against RNA-mediated diseases, nine
            endpoints; `pxr`: activation of the pregnane X receptor, pEC50; `antiviral-admet` and `antiviral-potency`:
            of ASAP Discovery with Polaris, five endpoints and two.
        target: an endpoint, or several, by their published names (`KSOL`); all by default. Molecules without any of
            them are left out.
        split: how to split the training molecules into training and validation; see `Molecules`.
        fractions: shares of train and validation, in proportion, of the organisers' training molecules; the third share
            is not used.
        root: folder for downloaded files.
        options: options of `Molecules` that do not concern files and columns.

    Raises:
        BadInput: there is no such challenge or endpoint, or an option of `Molecules` is set that the challenge fixes.
    """

    spec = specs.OPENADMET

    def __init__(
        self,
        challenge: Challenge = "expansionrx",
        target: str | list[str] | None = None,
        split: SplitKind = "random",
        fractions: tuple[float, float, float] = (0.8, 0.1, 0.1),
        root: str = "data",
        **options: Any,
    ) -> None:
        check_choice("challenge", challenge, get_args(Challenge))
        published = _PUBLISHED[challenge]
        self.challenge = challenge
        self.endpoints = _endpoints(published, target)
        chosen = (
            ""
            if self.endpoints == published.endpoints
            else "".join(f"-{published.endpoints.index(name)}" for name in self.endpoints)
        )
        self._folder = Path(root, "OpenADMET", challenge)
        super().__init__(
            file=str(self._folder / f"train{chosen}.csv"),
            test_file=str(self._folder / f"test{chosen}.csv"),
            target=[published.target(name) for name in self.endpoints],
            task="regression",
            num_classes=None,
            classes=None,
            smiles_column="smiles",
            id_column="name",
            split=split,
            split_column=None,
            fractions=fractions,
            folds=None,
            fold=None,
            val_file=None,
            weight=None,
            log10=None,
            missing=None,
            features=None,
            categories=None,
            time_column=None,
            time_format=None,
            root=root,
            **options,
        )
        self.spec = replace(self.spec, target_units=tuple(published.unit(name) for name in self.endpoints))

    def check_source(self) -> None:
        """Fetch the files, then run the checks of `Molecules`."""
        self._fetch()
        super().check_source()

    def source_key(self) -> dict[str, Any]:
        """Fetch the files; return the key of `Molecules`, which has their checksums."""
        self._fetch()
        return super().source_key()

    def _fetch(self) -> None:
        """Write both parts as tables with names, SMILES and the chosen targets, unless they exist.

        The published files are read each time, so that another release that was put there by hand takes effect.
        """
        published = _PUBLISHED[self.challenge]
        address = f"https://huggingface.co/datasets/openadmet/{published.data_set}/resolve/main/"
        names = dict.fromkeys((*published.train, *published.test))
        others = {name: address + name for name in names}
        advice = "Molecules reads your own file; NCI needs no download."
        paths = {
            name: fetch(
                address + name, self._folder, name, what=f"OpenADMET {self.challenge}", others=others, advice=advice
            )
            for name in names
        }
        for path, files, part in (
            (self.train_files[0], published.train, "Train"),
            (self.split_request.files["test"], published.test, "Test"),
        ):
            table = pd.concat([_read(paths[name], published, self.endpoints, part) for name in files])
            text = table.to_csv(index=False)
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                write_shared(path, text)


def _endpoints(published: _Published, target: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the published names of the chosen endpoints."""
    if target is None:
        return published.endpoints
    chosen = (target,) if isinstance(target, str) else tuple(target)
    for name in chosen:
        if name not in published.endpoints:
            raise BadInput(f"target: {name!r} must be one of {', '.join(map(repr, published.endpoints))}.")
    if not chosen or len(set(chosen)) < len(chosen):
        raise BadInput(f"target: expected one or several distinct endpoints, got {list(chosen)}.")
    return chosen


def _read(path: Path, published: _Published, endpoints: Sequence[str], part: str) -> pd.DataFrame:
    """Read the molecules of a part that have one of the endpoints, with targets in the scale of the scores."""
    with foreign(path, FETCH_AGAIN):
        table = pd.read_csv(path)
    needed = ["Molecule Name", published.smiles, *endpoints]
    in_one_file = published.train == published.test
    if missing := [name for name in (*needed, *(["Set"] if in_one_file else [])) if name not in table]:
        raise CorruptData(f"{path} has no column {', '.join(map(repr, missing))}. {FETCH_AGAIN}")
    if in_one_file:
        if set(table["Set"]) != {"Train", "Test"}:
            raise CorruptData(f"{path}: the column 'Set' must say Train or Test in every row. {FETCH_AGAIN}")
        table = table[table["Set"] == part]
    with foreign(path, FETCH_AGAIN):
        smiles = table[published.smiles].str.split().str[0]
    molecules = pd.DataFrame({"name": table["Molecule Name"], "smiles": smiles})
    for endpoint in endpoints:
        with foreign(path, FETCH_AGAIN):
            values = table[endpoint].astype(np.float64)
        molecules[published.target(endpoint)] = (
            np.log10(values.clip(lower=0) + 1) if endpoint in published.logged else values
        )
    molecules = molecules.dropna(how="all", subset=list(molecules.columns[2:]))
    if (absent := molecules["smiles"].isna()).any():
        raise CorruptData(f"{path} lacks the SMILES of {molecules['name'][absent].iloc[0]}. {FETCH_AGAIN}")
    return molecules
