"""The manifest: what run a store belongs to. Opened by one run, and by another only if it is the same."""

import hashlib
from typing import Any

import numpy as np

from ._abstract import AbstractStore
from ._atomic import StoreError
from ._fingerprint import Fingerprint, check_same

FORMAT = 3

_REMEDY = "it was damaged or changed. Restore it, or use another path"


def open_run(
    store: AbstractStore, found: Fingerprint, info: dict[str, Any], *, kind: str, resume: bool
) -> dict[str, Any]:
    """Makes a store ready for a run: a new one, or one that is resumed.

    Args:
        store: The store.
        found: The inputs on which the run depends.
        info: Further contents of the manifest, for readers of the results.
        kind: The kind of the run, such as "simulate" or "sweep".
        resume: Whether to continue the run in the store.

    Returns:
        The manifest; its "fingerprint" and "kind" belong to the run.

    Raises:
        StoreError: If the store holds another run, or any where `resume` is not set, or cannot be written to.
    """
    manifest = store.read_manifest()
    if manifest is None:
        # another run may have written both meanwhile, the manifest first
        if store.numbers() and store.read_manifest() is None:
            raise StoreError(f"{store} contains blocks but no manifest, so their run is unknown. Use another path.")
        run = {"kind": kind, "store": type(store).__name__, "fingerprint": found.to_json()}
        manifest = {"format": FORMAT, **run, **info}
        if store.create_manifest(manifest):
            return manifest
        manifest = store.read_manifest()  # another run was quicker
        if manifest is None:
            raise StoreError(f"{store} has a manifest that cannot be read, or another process removes its files.")
    if not resume:
        raise StoreError(
            f"{store} already contains a run. Use another path, delete the folder, or continue that run with "
            "`resume=True`."
        )
    check_kind(manifest, (kind,), store)
    check_same(_fingerprint_of(manifest, store), found, where=str(store))
    return manifest


def digest_of_run(manifest: dict[str, Any], store: AbstractStore) -> np.ndarray:
    """Returns the digest of a store's run, 16 bytes, which each of its blocks holds."""
    digest = _fingerprint_of(manifest, store).digest
    return np.frombuffer(hashlib.blake2b(digest.encode(), digest_size=16).digest(), np.uint8)


def _fingerprint_of(manifest: dict[str, Any], store: AbstractStore) -> Fingerprint:
    try:
        return Fingerprint.from_json(manifest["fingerprint"])
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"The manifest of {store} does not list the inputs of its run: {_REMEDY}.") from error


def check_kind(manifest: dict[str, Any], kinds: tuple[str, ...], store: AbstractStore) -> None:
    """Checks that a manifest was written by one of some kinds of run, with this store, in a format of this version.

    Another class of store finds none of the blocks. Manifests of earlier versions do not name the class.

    Raises:
        StoreError: If not.
    """
    if manifest.get("format") != FORMAT:
        raise StoreError(
            f"{store} was written in format {manifest.get('format')}, but this version of sciml reads format {FORMAT}."
        )
    if manifest.get("kind") not in kinds:
        wanted = " or ".join(f"`{kind}`" for kind in kinds)
        raise StoreError(f"{store} was written by `{manifest.get('kind')}`, not by {wanted}. Use another path.")
    written = manifest.get("store")
    if written is not None and written not in [kind.__name__ for kind in type(store).__mro__]:
        raise StoreError(
            f"{store} contains a run that was written by a `{written}`. Pass that store instead of its path, as in "
            f"`{written}(path)`; if the class was renamed, change `store` in the manifest."
        )
