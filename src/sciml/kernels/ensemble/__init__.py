"""Ensembles: the whole integration of a block of members in one kernel, with states in registers."""

from typing import TYPE_CHECKING

from ... import _former_names as _former_names

if not TYPE_CHECKING:  # a type checker would believe that there is every name
    __getattr__ = _former_names.knows_former_names(__name__)
