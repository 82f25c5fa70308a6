"""A vector field with the structure of its Jacobian."""

from ..._types import RealScalarLike, Y
from ..terms._field import AbstractField, BoundField
from ._structure import AbstractStructure


class BoundStructuredField:
    """A vector field with its operands, as a function of time and state.

    Attributes:
        structure: The structure of systems with its Jacobian, or several of them.
    """

    def __init__(self, field: BoundField, structure: AbstractStructure | tuple[AbstractStructure, ...]):
        self._field, self.structure = field, structure

    def __call__(self, t: RealScalarLike, y: Y) -> Y:
        """Returns the vector field."""
        return self._field(t, y)


class StructuredField(AbstractField):
    """A closed vector field with the structure that was read from its model, whose constants are known there."""

    def __init__(self, field: AbstractField, structure: AbstractStructure | tuple[AbstractStructure, ...]):
        self._field, self._structure = field, structure
        self.reads_time, self.has_rules, self.on_arrays = field.reads_time, field.has_rules, field.on_arrays

    def of_one(self) -> "StructuredField":
        """Returns the field for a single member, with the formats of matrices that compile fast."""
        structure = self._structure
        found = tuple(x.of_one() for x in structure) if isinstance(structure, tuple) else structure.of_one()
        return StructuredField(self._field, found)

    def __call__(self, t: RealScalarLike, y: Y, operands: list) -> Y:
        """Returns the vector field."""
        return self._field(t, y, operands)

    def bind(self, operands: list, whole: bool = True) -> BoundStructuredField:
        """Returns the field with its operands, as a function of time and state."""
        return BoundStructuredField(self._field.bind(operands, whole), self._structure)
