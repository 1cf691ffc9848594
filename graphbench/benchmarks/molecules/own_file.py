"""Your own molecules: one file with SMILES and targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from rdkit import Chem, rdBase

from graphbench.benchmarks.base import Chunks
from graphbench.benchmarks.molecules import specs
from graphbench.benchmarks.molecules.base import MoleculeBenchmark
from graphbench.benchmarks.molecules.chemistry.descriptors import DescriptorSet, descriptor_parts
from graphbench.benchmarks.molecules.chemistry.files import TargetTask
from graphbench.benchmarks.molecules.chemistry.properties import combine_terms
from graphbench.benchmarks.molecules.chemistry.reading import Recipe, read_molecules
from graphbench.benchmarks.molecules.chemistry.several_files import check_columns, read_user_files
from graphbench.benchmarks.molecules.chemistry.tables import with_targets
from graphbench.benchmarks.molecules.chemistry.user_file import (
    FileRequest,
    OnError,
    UserMolecules,
    check_targets,
    count_classes,
    read_file_share,
    read_split_labels,
    read_user_file,
    recipe_of,
)
from graphbench.benchmarks.molecules.own_features import MoleculeFeatures
from graphbench.benchmarks.molecules.own_splits import MoleculeSplit, RepeatRule, SplitKind
from graphbench.contracts import SPLITS, Baseline, BenchmarkSpec, GraphTable, InputPart
from graphbench.contracts.benchmark import PART_ROWS, Wanted
from graphbench.contracts.spec import LOSSES, METRICS, TaskName
from graphbench.contracts.table import BOUNDS, WEIGHT
from graphbench.data.columns import divide_weights, mean_weight, relative_weights
from graphbench.data.entry import Entry, EntryWriter
from graphbench.data.package_files import file_sha256
from graphbench.data.parts.kept import KeptParts
from graphbench.data.parts.shares import Share
from graphbench.data.progress import track
from graphbench.data.splits import check_fractions, without_share
from graphbench.data.tables import Selection, content_key
from graphbench.errors import BadInput, check_choice
from graphbench.tables.reader import MOLECULES, check_table, open_table
from graphbench.tables.text import suffix_of

Chirality = Literal["CIP", "RDKit"]


class Molecules(MoleculeBenchmark):
    """Your own molecules, from a CSV, TSV, JSON lines, SMILES, SDF, Parquet or Excel file with targets.

    Atoms and bonds get OGB's nine and three categorical columns (but see `chirality`). None of them has isotopes or
    map numbers, so deuterium is hydrogen, and molecules that differ only in these count as one. Rows that cannot be
    used (RDKit cannot read the molecule, it has no atoms, a target is missing or not a number, ...) are counted and
    listed with their lines in one message, and so are repeated molecules with different targets.

    Names of columns are matched in any case. Cells may be separated by commas, semicolons or tabs, and numbers may have
    decimal commas unless commas separate the cells; this is logged in one line.

    Args:
        file: the file; its suffix decides the format. `.csv`, `.tsv` and `.tab` files have a header, `.jsonl` files an
            object on each line. A `.smi`, `.smiles` or `.txt` file has a SMILES and a name (column `_Name`) on each
            line, or a header that begins with `smiles_column`. An `.sdf`, `.sd` or `.mol` file has properties, and
            names in `_Name`. For an `.xlsx` file the first sheet is read (needs the extra `excel`), for `.parquet` the
            index is a column. Text may be packed (`.gz`), and is UTF-8 or UTF-16. Several files are one training set:
            `[solubility.csv, acidity.csv]` with their own targets, and gaps if a file (also of `val_file` and
            `test_file`) has no such column; other columns must be in each. Molecules are named `FILE:LINE`.
        target: target column, or several; `penalized_logp` computes that property (constants of ZINC-full, smallest
            rings) and needs no column.
        task: regression; classification (one column of class numbers from 0, or of the names in `classes`);
            multilabel (columns of 0 and 1). Rows may lack some of several targets: missing cells are neither trained on
            nor scored. Numbers of a regression may be bounds (`>10`, `<=0.1`): their loss is one-sided, 0 for
            predictions beyond the bound, and they are not scored.
        num_classes: number of classes, for class numbers.
        classes: names of the classes in the file, from class 0 on: `[inactive, active]`.
        smiles_column: column with SMILES.
        id_column: column with names for predictions; by default molecules are named by their line.
        split: `random`, using `split_seed`; `scaffold`: whole Murcko scaffolds, largest first; `scaffold_balanced`:
            whole scaffolds, with `split_seed` ordering the small ones; `column`: as given in `split_column`.
        split_column: the column for `split=column`: train, val or test (a few other spellings are accepted), where a
            missing one is cut from training at random; or fold numbers from 0, for three or more folds.
        test_file, val_file: files with the same columns for test and validation; if only one is given, the other part
            is cut from `file` according to `split`.
        fractions: shares of train, validation and test for random and scaffold splits, and for what is cut from
            training. 0 omits validation or test: `[1, 0, 0]` trains a final model on all molecules.
        split_seed: seed of the random and balanced splits, the folds of both, and what is cut from training.
        folds: cut the molecules into this many parts instead (3 or more): one for test, one for validation, the others
            for training. The parts are random, or consist of whole scaffolds or clusters for such a `split`;
            `fractions` is not used. With `split=column`, the number of folds in the column.
        fold: the test part, from 0; for fold numbers in a column, 0 by default.
        on_error: stop at unusable rows, or skip them with a warning; with several targets, an unusable one counts as
            missing, and the row stays.
        metric: the score that selects checkpoints; by default MAE (for several targets scaled_MAE, the mean of their
            errors in standard deviations of training), accuracy or AP.
        log10: regression targets that are trained on as decimal logarithms, such as concentrations. Predictions,
            intervals and errors stay in the unit of the file, but scaled errors are those of the logarithm; scaled_MAE
            is then the default metric.
        target_weights: weights of several targets in the loss, 0 or more: one number per target in order, or by name
            (`{logS: 3}`, others weigh 1). Only ratios count: they are divided by their mean.
        weight: column with the weight of each row in the loss, 0 or more. Only ratios count: weights are divided by
            their mean over the training rows. Losses of all splits are weighted, metrics are not.
        repeats: `together` keeps rows of one molecule (one canonical SMILES) in one split or fold; `apart` splits them
            like other rows. Scaffolds and clusters always keep them together, `split=column` follows the file.
        chirality: values in the column of stereo centres: `CIP`, R or S by the rules of Cahn, Ingold and Prelog; or
            `RDKit`, the tags CW and CCW as published by OGB, which differ between spellings of one molecule.
        features: columns of numbers that the head reads in addition to the graph (pH, temperature, custom descriptors),
            scaled by the training rows; every row needs them, also in predictions.
        categories: for columns of `features` that contain words: `{assay: [A, B]}`; each word gets a column of 0 and 1.
        descriptors: what RDKit computes for the head in addition to the graph: `rdkit2d` (its list of some 200
            descriptors) or `morgan` (2,048 hashed counts).
        missing: words or numbers for a missing target, in addition to the usual ones (empty, NA, N/A, NaN, null, None,
            ND, - and the like): `[-999]`; `[]` for only empty cells and NaN.
        options: see `GraphBenchmark`.

    Raises:
        BadInput: options contradict each other, or the file is of another kind.
        MissingExtra: the file is an `.xlsx` file, and openpyxl is not installed.
    """

    data_version = 2  # targets keep float64 if they need it
    spec = specs.MOLECULES

    def __init__(
        self,
        file: str | list[str],
        target: str | list[str],
        task: TargetTask = "regression",
        num_classes: int | None = None,
        classes: list[str] | None = None,
        smiles_column: str = "smiles",
        id_column: str | None = None,
        split: SplitKind = "random",
        split_column: str | None = None,
        fractions: tuple[float, float, float] = (0.8, 0.1, 0.1),
        split_seed: int = 0,
        folds: int | None = None,
        fold: int | None = None,
        test_file: str | None = None,
        val_file: str | None = None,
        on_error: OnError = "stop",
        metric: str | None = None,
        weight: str | None = None,
        log10: str | list[str] | None = None,
        target_weights: list[float] | dict[str, float] | None = None,
        repeats: RepeatRule = "together",
        chirality: Chirality = "CIP",
        missing: list[int | float | str] | None = None,
        features: list[str] | None = None,
        categories: dict[str, list[str]] | None = None,
        descriptors: DescriptorSet | None = None,
        time_column: str | None = None,
        time_format: str | None = None,
        cluster_distance: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        files = {name: Path(path) for name, path in (("val", val_file), ("test", test_file)) if path is not None}
        self.train_files = tuple(map(Path, _tuple(file)))
        _check_files(self.train_files, tuple(files.values()))
        check_choice("task", task, get_args(TargetTask))
        check_choice("on_error", on_error, get_args(OnError))
        check_choice("chirality", chirality, get_args(Chirality))
        num_classes = count_classes(task, num_classes, classes)
        self.request = FileRequest(
            self.train_files[0], smiles_column, _tuple(target), task, num_classes or 2, _tuple(classes), id_column,
            split_column, time_column, time_format, scaffold=split.startswith("scaffold"), paired=split == "butina",
            on_error=on_error, weight=weight, features="ogb_cip" if chirality == "CIP" else "ogb",
            missing=None if missing is None else tuple(missing), log10=_tuple(log10),
            beside=MoleculeFeatures(_tuple(features), categories or {}, descriptors),
        )  # fmt: skip
        self.split_request = MoleculeSplit(
            self.train_files[0], split, split_column, check_fractions(fractions), split_seed, folds, fold, repeats,
            files, further=self.train_files[1:], time=(time_column, time_format), distance=cluster_distance,
        )  # fmt: skip
        self.split_request.check()
        self.missing, self.empty_splits = missing, without_share(fractions)  # `missing` for `inputs.with_labels`
        check_targets(self.request, num_classes, metric)
        self.spec = replace(
            _fill_spec(type(self).spec, self.request, num_classes, metric),
            target_weights=relative_weights(target_weights, self.request.targets, task),
            source=f"the file{'s' if len(self.train_files) > 1 else ''} {self.split_request.source}",
        )

    @property
    def smiles_column(self) -> str:  # type: ignore[override]
        """Return the column with SMILES in this file, and by default in new ones."""
        return self.request.smiles_column

    def target_labels(self) -> tuple[str, ...]:
        """Return the target columns of the file."""
        return self.request.targets

    def class_labels(self) -> tuple[str, ...]:
        """Return the names or numbers of the classes in the file."""
        return self.request.classes or tuple(str(number) for number in range(self.spec.num_classes or 0))

    def open_split(self, entry: Entry, split: str) -> GraphTable:
        """Open one split with all encodings and descriptors."""
        table, beside = super().open_split(entry, split), self.request.beside
        kind = beside.descriptors
        if kind is None:
            return table
        # Keyed by content, so that another task or split seed for the same molecules finds them.
        key = {"kind": "descriptors", "content": content_key(entry, split), "name": kind, "rdkit": rdBase.rdkitVersion}

        def build(writer: EntryWriter) -> None:
            for part in descriptor_parts(kind, self.smiles(split)):
                writer.append("values", part)

        stored = self.store.open_or_build(key, build, f"descriptors of {self.spec.name} {split}")
        return beside.behind_columns(table, torch.from_numpy(stored.arrays["values"]))

    def batch_options(self) -> dict[str, Any]:
        """Add the descriptors to `GraphBenchmark.batch_options`."""
        chosen = self.request.beside.descriptors
        return super().batch_options() | ({} if chosen is None else {"descriptors": chosen})

    def _rivals(self, test: str | Sequence[str]) -> dict[str, Baseline]:
        """Fit like `MoleculeBenchmark`; the note says that further columns are ignored."""
        rivals, columns = super()._rivals(test), self.request.beside.columns
        if not columns:
            return rivals
        words = f"does not see the features {', '.join(columns)}"
        return {name: replace(one, note="; ".join(filter(None, (one.note, words)))) for name, one in rivals.items()}

    def input_recipe(self) -> tuple[Any, ...] | None:
        """Return what is computed from a SMILES, the column of SMILES, and what else is read."""
        return *(super().input_recipe() or ()), self.request.beside

    def _input_recipe(self) -> Recipe:
        return replace(self._recipe(), descriptors=self.request.beside.descriptors)

    def _read_file(self, source: str, column: str | None, size: int, wanted: Wanted) -> Iterator[InputPart]:
        """Read like `SmilesInput`, with features and descriptors; a row without a feature is a problem."""
        return self.request.beside.join_inputs(super()._read_file(source, column, size, wanted), source)

    def read_objects(self, objects: Sequence[Any], size: int = PART_ROWS) -> Iterator[InputPart]:
        """Read SMILES and RDKit molecules, with descriptors.

        Raises:
            BadInput: the model reads columns of a file, or it reads descriptors and these are graphs.
        """
        beside = self.request.beside
        is_smiles = any(item is None or isinstance(item, (str, Chem.Mol)) for item in objects)
        if beside.columns or (beside.descriptors is not None and not is_smiles):
            raise BadInput(
                f"{self.spec.name}: the model also reads {', '.join((*beside.columns, beside.descriptors or '')[:9])}, "
                "which these inputs do not have. Predict a file with these columns (--input FILE)."
            )
        return super().read_objects(objects, size)

    def read_labelled(self, source: str, column: str | None = None, size: int = PART_ROWS) -> Iterator[InputPart]:
        """Read labels like `GraphBenchmark.read_labelled`; a computed target needs no column."""
        if not self.request.computed:
            yield from super().read_labelled(source, column, size)
            return
        recipe = Recipe(self.request.features, "smallest_rings")
        for part in self.read_input(source, column, size):
            terms = read_molecules(self.input_texts(part, column), recipe, num_workers=0).terms
            yield replace(part, table=with_targets(part.table, combine_terms(terms), exact=True))

    def fold_options(self, count: int) -> list[dict[str, Any]]:
        """Return the options of each fold: of random molecules, whole scaffolds or a column, depending on `split`."""
        if self.split_request.kind == "column":
            labels = [read_split_labels(replace(self.request, file=path)) for path in self.train_files]
            self.split_request.check_folds(count, [label for part in labels for label in part])
        else:
            self.split_request.check_free(f"--folds {count}")
        return [{"folds": count, "fold": fold} for fold in range(count)]

    def check_source(self) -> None:
        """Check that the header of every file has the columns named by options."""
        untimed = replace(self.request, time_column=None)
        others = [(untimed, (path,)) for path in self.split_request.files.values()]
        for request, files in [(self.request, self.train_files), *others]:
            if len(self.train_files) > 1:
                check_columns(request, files, gaps=len(files) == 1)
            else:
                open_table(files[0], request.smiles_column, request.columns, MOLECULES, "molecules")

    def check_split_seed(self) -> None:
        """Refuse seeds if the file or the scaffolds determine the split."""
        self.split_request.check_seed()

    def source_key(self) -> dict[str, Any]:
        """Return the checksum of the file, the version of RDKit, and every option that changes the data."""
        request, further = self.request, self.train_files[1:]
        # Options added later are in the key only if they are used, so older stores stay valid.
        return {
            "file": file_sha256(request.file),
            "format": suffix_of(request.file),
            **({"further": [[path.name, file_sha256(path)] for path in further]} if further else {}),
            "rdkit": rdBase.rdkitVersion,
            "features": request.features,  # earlier versions had one kind, and isotopes distinguished molecules
            "columns": [request.smiles_column, list(request.targets), request.id_column, request.split_column],
            "task": [request.task, request.num_classes],
            **self.split_request.key(),
            **({"classes": list(request.classes)} if request.classes else {}),
            **({} if request.weight is None else {"weight": request.weight}),
            "on_error": request.on_error,
            **request.beside.key(),
            **({} if request.missing is None else {"missing": list(request.missing)}),
            **({"log10": list(request.log10)} if request.log10 else {}),
            # earlier versions skipped bounds
            **({"bounds": "read"} if request.on_error == "skip" and request.task == "regression" else {}),
            # earlier versions had map numbers in scaffolds
            **({"scaffolds": "unlabelled"} if request.scaffold else {}),
            # earlier versions read numbers as dates if one cell was neither, and each file for itself
            **({"times": "as one"} if request.time_column and (further or request.on_error == "skip") else {}),
            # earlier versions skipped whole rows
            **({"masked": "cells"} if request.on_error == "skip" and len(request.targets) > 1 else {}),
        }

    def read(self) -> dict[str, Chunks]:
        """Read, check and split the file or files; graphs of a large file stay on disk."""
        molecules = self._read_files(self.train_files)
        others = {name: self._read_files([path], cut=False) for name, path in self.split_request.files.items()}
        self.left_out = molecules.left_out + sum(other.left_out for other in others.values())
        rows, self.split_words = self.split_request.divide(molecules, others)
        rows |= {name: torch.arange(len(other.table)) for name, other in others.items()}
        labels = {name: values for name, values in molecules.table.columns.items() if name in ("y", WEIGHT, *BOUNDS)}
        mean = mean_weight({name: values[rows["train"]] for name, values in labels.items()})
        sources = {name: divide_weights(others.get(name, molecules).table, mean) for name in SPLITS}
        return {name: Selection(sources[name], rows[name]) for name in SPLITS}

    def _read_files(self, files: Sequence[Path], cut: bool = True) -> UserMolecules:
        """Read files that are `cut` into splits as one; targets may be missing if the training part has several."""
        request = self.request if cut else replace(self.request, time_column=None, paired=False)
        if len(self.train_files) > 1:
            return read_user_files(
                request, files, track, gaps=len(files) == 1, kept=self._kept, joined=self._joined(files)
            )
        return read_user_file(replace(request, file=files[0]), track, self._kept(files[0]))

    def _kept(self, file: Path) -> KeptParts:
        """Return the parts of a file, which depend only on its molecules."""
        key = {
            "kind": "molecules", "version": self.data_version, "file": file_sha256(file), "format": suffix_of(file),
            "column": self.smiles_column, "rdkit": rdBase.rdkitVersion, "recipe": asdict(recipe_of(self.request)),
            **({"scaffolds": "unlabelled"} if self.request.scaffold else {}),
        }  # fmt: skip
        return KeptParts(self.store, key)

    def _joined(self, files: Sequence[Path]) -> KeptParts:
        """Return the store of several joined files, which depends on all options."""
        return KeptParts(self.store, {"kind": "files", "files": [path.name for path in files], **self._table_key()})

    def read_share(self, share: Share) -> int:
        """Read a share of the molecules of all files; return the number of missing parts."""
        files = (*self.train_files, *self.split_request.files.values())
        requests = (replace(self.request, file=path) for path in files)
        return sum(read_file_share(request, share, self._kept(request.file), track) for request in requests)

    def open_tables(self) -> None:
        """Open like `GraphBenchmark`; remove the parts of the files once the tables of all folds exist."""
        super().open_tables()
        others, folds, key = self.split_request.files.values(), self.split_request.folds, self._table_key()
        for files in (self.train_files, *((path,) for path in others)):
            self._joined(files).remove()
        keys = [{**key, "source": {**key["source"], "folds": [folds, fold]}} for fold in range(folds or 0)]
        if all(self.store.folder({"kind": "table", **one}).is_dir() for one in keys):
            for path in (*self.train_files, *others):
                self._kept(path).remove()


def _check_files(train: tuple[Path, ...], further: tuple[Path, ...]) -> None:
    """Refuse an empty list, repeated files, and files that are not tables of molecules."""
    if not train or len({path.resolve() for path in train}) < len(train):
        raise BadInput(f"file: expected one or several distinct files, got {[str(path) for path in train]}.")
    for path in (*train, *further):
        check_table(path, MOLECULES, "molecules")


def _tuple(names: str | Sequence[str] | None) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names or ())


def _fill_spec(spec: BenchmarkSpec, request: FileRequest, num_classes: int | None, metric: str | None) -> BenchmarkSpec:
    task, targets = request.task, request.targets
    scaled = task == "regression" and (len(targets) > 1 or bool(request.log10))
    return replace(
        spec,
        task=cast("TaskName", f"graph-{task}"),
        metric=metric or ("scaled_MAE" if scaled else METRICS[task][0]),
        higher_is_better=task != "regression",
        loss=LOSSES[task][0],
        num_targets=len(targets),
        num_classes=num_classes,
        target_names=request.classes if task == "classification" else targets,
        log10_targets=tuple(name in request.log10 for name in targets) if request.log10 else (),
        extra={"atom_vocabulary": request.features},
        graph=request.beside.features(),
    )
