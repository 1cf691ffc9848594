"""Process one SMILES: parse it, explain errors of RDKit, remove labels, and determine handedness by CIP rules.

RDKit's tags CW and CCW describe how the neighbours of a centre turn *in the order in which they are listed*, so two
spellings of one molecule have different tags. The labels R and S of Cahn, Ingold and Prelog (r and s if substituents
differ only in handedness) rank the neighbours by their structure (Hanson et al., J. Chem. Inf. Model. 2018, 58, 1755).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from rdkit import Chem
from rdkit.Chem import rdCIPLabeler, rdqueries

from graphbench.benchmarks.molecules.chemistry.problems import EMPTY, TOO_LARGE, UNREADABLE, MoleculeProblem
from graphbench.tables.records import EXTENDED

#: Numbers in OGB's chirality column, where 0 is an atom without handedness.
R, S, UNDECIDED = 1, 2, 3
_NUMBER = {"R": R, "r": R, "S": S, "s": S}
_TETRAHEDRAL = (Chem.ChiralType.CHI_TETRAHEDRAL_CW, Chem.ChiralType.CHI_TETRAHEDRAL_CCW)
# Queries search the atoms in C++, ten times as fast as a Python loop.
_WITH_TAG = rdqueries.HasChiralTagQueryAtom()
_WITH_ISOTOPE = rdqueries.IsotopeGreaterQueryAtom(0)
_WITH_MAP_NUMBER = rdqueries.HasPropQueryAtom("molAtomMapNumber")
#: Comparisons of branches after which a molecule's centres count as undecided; limits the time for large cages.
_MAX_COMPARISONS = 1_250_000
#: Maximum atoms of a molecule: the time of RDKit, dense encodings and attention grows with the square of the atoms or
#: faster, so ten times as many would take hours before training.
MAX_ATOMS = 5_000
_ATOM = re.compile(r"\[[^\]]*\]|Cl|Br|[BCNOPSFIbcnops*]")
_INCHI_KEY = re.compile(r"[A-Z]{14}-[A-Z]{10}-[A-Z]")
_BRACKETS = re.compile(r"\[[^\]]*\]")
_RING_BOND = re.compile(r"%\((\d+)\)|%(\d\d)|(\d)")


def count_atoms(smiles: str) -> int:
    """Count the atoms that a SMILES writes down, without parsing it.

    Examples:
        >>> count_atoms("Cl[C@@H](Br)c1ccccc1"), count_atoms("[NH4+].[Na+]")
        (9, 2)
    """
    return len(_ATOM.findall(smiles))


def parse_smiles(smiles: str) -> Chem.Mol:
    """Parse a SMILES into a sanitised molecule of 1 to `MAX_ATOMS` atoms, or raise `MoleculeProblem`."""
    if len(smiles) > MAX_ATOMS and (atoms := count_atoms(smiles)) > MAX_ATOMS:
        raise MoleculeProblem(TOO_LARGE, f"{atoms} atoms, but at most {MAX_ATOMS} are read")
    mol = Chem.MolFromSmiles(smiles)
    if mol is None:
        raise MoleculeProblem(UNREADABLE, why_unreadable(smiles))
    if mol.GetNumAtoms() == 0:
        raise MoleculeProblem(EMPTY)
    if ":" in smiles:  # RDKit makes an aromatic bond outside of rings single, but keeps what it derived from it before
        Chem.SetConjugation(mol)
        Chem.SetHybridization(mol)
    return mol


def why_unreadable(text: str) -> str:
    """Explain why `Chem.MolFromSmiles` rejects a text.

    Examples:
        >>> why_unreadable("C1CC"), why_unreadable("CC>>CO")
        ('ring bond 1 is opened and not closed', 'a reaction, not one molecule: give its reactant or its product')
    """
    if text.startswith("InChI="):
        return "an InChI, not a SMILES: RDKit's Chem.MolFromInchi reads it, Chem.MolToSmiles writes the SMILES"
    if _INCHI_KEY.fullmatch(text):
        return "an InChIKey, from which no structure can be read: look up its SMILES"
    if text.replace("->", "").replace("<-", "").count(">") == 2:
        return "a reaction, not one molecule: give its reactant or its product"
    if (extended := EXTENDED.fullmatch(text)) and Chem.MolFromSmiles(extended[1]) is not None:
        return f"the SMILES is read, but not its extension {extended[2]}"
    if foreign := next((letter for letter in text if not letter.isascii()), ""):
        return f"it has the character {foreign!r} ({unicodedata.name(foreign, f'U+{ord(foreign):04X}')})"
    mol = Chem.MolFromSmiles(text, sanitize=False)
    if mol is None:
        return _unclosed(text) or "not a SMILES string"
    problems = Chem.DetectChemistryProblems(mol)
    return problems[0].Message() if problems else "cannot be sanitised"


def _unclosed(text: str) -> str:
    """Describe the brackets, ring bonds or parentheses that are not closed in a text."""
    outside = _BRACKETS.sub("", text)
    if "[" in outside or "]" in outside:
        return "a square bracket is not closed, or not opened"
    labels = Counter(next(filter(None, match.groups())) for match in _RING_BOND.finditer(outside))
    if odd := [label for label, count in labels.items() if count % 2]:
        one = len(odd) == 1
        return f"ring bond{'' if one else 's'} {', '.join(odd)} {'is' if one else 'are'} opened and not closed"
    if outside.count("(") != outside.count(")"):
        return "a parenthesis is not closed, or not opened"
    return ""


def _matching(mol: Chem.Mol, query: Chem.Atom) -> list[Chem.Atom]:
    """Return the matching atoms; RDKit's own sequences take ten times as long to exhaust as to return their length."""
    atoms = mol.GetAtomsMatchingQuery(query)
    return [atoms[number] for number in range(len(atoms))]


def without_labels(mol: Chem.Mol) -> Chem.Mol:
    """Remove isotopes and map numbers, which are in no feature column, from a copy of a sanitised molecule.

    Deuterium and mapped hydrogens, which RDKit keeps as atoms, become implicit hydrogens of their neighbour. Centres
    that depend only on isotopes lose their chirality.

    Examples:
        >>> Chem.MolToSmiles(without_labels(Chem.MolFromSmiles("[2H]C([2H])([2H])[CH2:7]O")))
        'CCO'
    """
    is_mapped = any(atom.GetAtomMapNum() for atom in _matching(mol, _WITH_MAP_NUMBER))
    if not is_mapped and not _matching(mol, _WITH_ISOTOPE):
        return mol
    plain = Chem.Mol(mol)
    for atom in plain.GetAtoms():
        atom.SetIsotope(0)
        atom.SetAtomMapNum(0)
    plain = Chem.RemoveHs(plain)
    # RDKit derived these with the labels in place, and does not update them by itself.
    Chem.SetConjugation(plain)
    Chem.SetHybridization(plain)
    Chem.AssignStereochemistry(plain, cleanIt=True, force=True)
    return plain


def handedness(mol: Chem.Mol) -> dict[int, int]:
    """Return R, S or `UNDECIDED` for every marked tetrahedral centre, independent of the order of the atoms.

    The rules cannot rank two neighbours in caged phosphites, and molecules with too many comparisons are undecided.
    Atoms get RDKit's property `_CIPCode`.

    Examples:
        >>> [handedness(Chem.MolFromSmiles(text)) for text in ("N[C@@H](C)C(=O)O", "C[C@H](N)C(=O)O")]
        [{1: 2}, {1: 2}]
    """
    centres = [atom for atom in _matching(mol, _WITH_TAG) if atom.GetChiralTag() in _TETRAHEDRAL]
    if not centres:
        return {}
    try:
        rdCIPLabeler.AssignCIPLabels(mol, maxRecursiveIterations=_MAX_COMPARISONS)
    except (RuntimeError, ValueError):  # some labels are set by then, depending on the order of the atoms
        return dict.fromkeys((atom.GetIdx() for atom in centres), UNDECIDED)
    return {
        atom.GetIdx(): _NUMBER.get(atom.GetProp("_CIPCode"), UNDECIDED) if atom.HasProp("_CIPCode") else UNDECIDED
        for atom in centres
    }


def remarks_about(mol: Chem.Mol) -> str:
    """Describe marks of a molecule that are in no feature column; "" if there are none.

    Examples:
        >>> remarks_about(Chem.MolFromSmiles("C[C@H](N)C(=O)O |&1:1|"))
        'a racemate or an unknown enantiomer, read as the one that is drawn'
        >>> remarks_about(Chem.MolFromSmiles("[2H]C([2H])([2H])O"))
        'isotopes, which the model does not see'
    """
    remarks, groups = [], mol.GetStereoGroups()
    if len(groups) and any(group.GetGroupType() != Chem.StereoGroupType.STEREO_ABSOLUTE for group in groups):
        remarks.append("a racemate or an unknown enantiomer, read as the one that is drawn")
    if any(atom.GetAtomicNum() for atom in _matching(mol, _WITH_ISOTOPE)):  # of "*": attachment points
        remarks.append("isotopes, which the model does not see")
    return "; ".join(remarks)


def as_smiles(mol: Chem.Mol) -> str:
    """Return a molecule as SMILES, with its marks of racemates and unknown enantiomers.

    Examples:
        >>> as_smiles(Chem.MolFromSmiles("CO")), as_smiles(Chem.MolFromSmiles("C[C@H](N)O |&1:1|"))
        ('CO', 'C[C@H](N)O |&1:1|')
    """
    if not mol.GetStereoGroups():
        return str(Chem.MolToSmiles(mol))
    return str(Chem.MolToCXSmiles(mol, Chem.SmilesWriteParams(), int(Chem.CXSmilesFields.CX_ENHANCEDSTEREO)))
