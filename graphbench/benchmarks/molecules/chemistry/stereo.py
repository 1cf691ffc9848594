"""What the features of a molecule can tell of it: without labels that no column has, with handedness by CIP rules.

RDKit's tags CW and CCW say how the neighbours of a centre turn *in the order in which they are listed*, so two
spellings of one molecule have different tags. The labels R and S of Cahn, Ingold and Prelog (r and s where substituents
differ in handedness alone) rank the neighbours by what they are (Hanson et al., J. Chem. Inf. Model. 2018, 58, 1755).
"""

from __future__ import annotations

from rdkit import Chem
from rdkit.Chem import rdCIPLabeler

#: Numbers in OGB's chirality column; a model learns a vector for each, whatever the words are.
FLAT, R, S, UNDECIDED = 0, 1, 2, 3
_NUMBER = {"R": R, "r": R, "S": S, "s": S}
_TETRAHEDRAL = (Chem.ChiralType.CHI_TETRAHEDRAL_CW, Chem.ChiralType.CHI_TETRAHEDRAL_CCW)
#: Comparisons of branches after which a molecule's centres count as undecided; it bounds the time on large cages.
_MOST_COMPARISONS = 1_250_000


def without_labels(mol: Chem.Mol) -> Chem.Mol:
    """A molecule without isotopes and map numbers, which no column of features has.

    Deuterium and mapped hydrogens, which RDKit keeps as atoms, become hydrogens of their neighbour like any other, and
    centres that differ in isotopes alone are none.

    Args:
        mol: sanitised; it stays as it is.

    Returns:
        The molecule itself where it has no such labels, else a copy.

    Examples:
        >>> Chem.MolToSmiles(without_labels(Chem.MolFromSmiles("[2H]C([2H])([2H])[CH2:7]O")))
        'CCO'
    """
    if not any(atom.GetIsotope() or atom.GetAtomMapNum() for atom in mol.GetAtoms()):
        return mol
    plain = Chem.Mol(mol)
    for atom in plain.GetAtoms():
        atom.SetIsotope(0)
        atom.SetAtomMapNum(0)
    plain = Chem.RemoveHs(plain)
    Chem.SetConjugation(plain)
    Chem.SetHybridization(plain)
    Chem.AssignStereochemistry(plain, cleanIt=True, force=True)
    return plain


def handedness(mol: Chem.Mol) -> dict[int, int]:
    """R or S of every tetrahedral centre that a molecule marks, whatever the order of its atoms.

    Args:
        mol: sanitised. Its atoms get RDKit's property `_CIPCode`.

    Returns:
        Atom -> `R`, `S`, or `UNDECIDED` where the rules rank two neighbours alike (caged phosphites) or the molecule
        takes more than a million comparisons.

    Examples:
        >>> [handedness(Chem.MolFromSmiles(text)) for text in ("N[C@@H](C)C(=O)O", "C[C@H](N)C(=O)O")]
        [{1: 2}, {1: 2}]
    """
    centres = [atom for atom in mol.GetAtoms() if atom.GetChiralTag() in _TETRAHEDRAL]
    if not centres:
        return {}
    try:
        rdCIPLabeler.AssignCIPLabels(mol, maxRecursiveIterations=_MOST_COMPARISONS)
    except (RuntimeError, ValueError):  # some labels are set by then, and which ones depends on the order of the atoms
        return dict.fromkeys((atom.GetIdx() for atom in centres), UNDECIDED)
    return {
        atom.GetIdx(): _NUMBER.get(atom.GetProp("_CIPCode"), UNDECIDED) if atom.HasProp("_CIPCode") else UNDECIDED
        for atom in centres
    }


def remarks_about(mol: Chem.Mol) -> str:
    """What a molecule says of itself that no column of features has, in words; "" where nothing.

    Examples:
        >>> remarks_about(Chem.MolFromSmiles("C[C@H](N)C(=O)O |&1:1|"))
        'a racemate or an unknown enantiomer, read as the one that is drawn'
        >>> remarks_about(Chem.MolFromSmiles("[2H]C([2H])([2H])O"))
        'isotopes, which the model does not see'
    """
    told = []
    if any(group.GetGroupType() != Chem.StereoGroupType.STEREO_ABSOLUTE for group in mol.GetStereoGroups()):
        told.append("a racemate or an unknown enantiomer, read as the one that is drawn")
    if any(atom.GetIsotope() for atom in mol.GetAtoms() if atom.GetAtomicNum()):  # of "*" it numbers attachment points
        told.append("isotopes, which the model does not see")
    return "; ".join(told)


def as_smiles(mol: Chem.Mol) -> str:
    """A molecule as SMILES, with the marks of racemates and unknown enantiomers where it has some.

    Examples:
        >>> as_smiles(Chem.MolFromSmiles("CO")), as_smiles(Chem.MolFromSmiles("C[C@H](N)O |&1:1|"))
        ('CO', 'C[C@H](N)O |&1:1|')
    """
    if not mol.GetStereoGroups():
        return str(Chem.MolToSmiles(mol))
    return str(Chem.MolToCXSmiles(mol, Chem.SmilesWriteParams(), int(Chem.CXSmilesFields.CX_ENHANCEDSTEREO)))
