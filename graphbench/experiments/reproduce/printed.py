"""Read a value as printed in a paper."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

# The number must not be followed by something that makes it part of a word or a version, as in 3D or 1.2.3.
_NUMBER = re.compile(r"^(-?[\d,]*\.?\d+(?:e-?\d+)?)\s*([kM%]?)(?:\s*±\s*(\d*\.?\d+))?(?![\w.])")
_UNITS = {"": 1.0, "%": 1.0, "k": 1e3, "M": 1e6}


@dataclass(frozen=True)
class Printed:
    """A value as it is printed."""

    text: str  # as printed; "" for a point of a curve
    value: float | None = None  # the number in it, if any
    sd: float | None = None  # its printed standard deviation
    unit: float = 0.0  # half of the last printed digit

    @classmethod
    def read(cls, text: Any) -> Printed:
        """Parse a printed text.

        Examples:
            >>> Printed.read("0.3774 ± 0.0150").sd
            0.015
            >>> Printed.read("421k")
            Printed(text='421k', value=421000.0, sd=None, unit=500.0)
            >>> Printed.read("GatedGCN").value is None
            True
        """
        text = "" if text is None else str(text)
        match = _NUMBER.match(text)
        if match is None:
            return cls(text)
        digits, unit, deviation = match.groups()
        digits = digits.replace(",", "")
        mantissa, _, exponent = digits.partition("e")
        places = len(mantissa.partition(".")[2])
        step = 0.5 * 10.0 ** (int(exponent or 0) - places) * _UNITS[unit]
        return cls(text, float(digits) * _UNITS[unit], float(deviation) if deviation else None, step)
