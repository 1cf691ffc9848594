"""Texts that are no SMILES: what they are instead, or what is wrong with them."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from rdkit import Chem

from graphbench.tables.records import EXTENDED

_INCHI_KEY = re.compile(r"[A-Z]{14}-[A-Z]{10}-[A-Z]")
_BRACKETS = re.compile(r"\[[^\]]*\]")
_RING_BOND = re.compile(r"%\((\d+)\)|%(\d\d)|(\d)")


def why_unreadable(text: str) -> str:
    """Why RDKit refuses a text as SMILES, in words of its own kind.

    Args:
        text: one that `Chem.MolFromSmiles` gives no molecule of.

    Examples:
        >>> why_unreadable("C1CC"), why_unreadable("CC>>CO")
        ('ring bond 1 is opened and not closed', 'a reaction, not one molecule: give its reactant or its product')
    """
    if text.startswith("InChI="):
        return "an InChI, not a SMILES: RDKit's Chem.MolFromInchi reads it, Chem.MolToSmiles writes the SMILES"
    if _INCHI_KEY.fullmatch(text):
        return "an InChIKey, from which no structure can be read: look its SMILES up"
    if text.replace("->", "").replace("<-", "").count(">") == 2:
        return "a reaction, not one molecule: give its reactant or its product"
    if (extended := EXTENDED.fullmatch(text)) and Chem.MolFromSmiles(extended[1]) is not None:
        return f"the SMILES is read, but not its extension {extended[2]}"
    if foreign := next((letter for letter in text if not letter.isascii()), ""):
        return f"it has the character {foreign!r} ({unicodedata.name(foreign, f'U+{ord(foreign):04X}')})"
    mol = Chem.MolFromSmiles(text, sanitize=False)
    if mol is None:
        return _broken(text) or "not a SMILES string"
    problems = Chem.DetectChemistryProblems(mol)
    return problems[0].Message() if problems else "cannot be sanitised"


def _broken(text: str) -> str:
    """What is left open in a text: ring bonds and parentheses."""
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
