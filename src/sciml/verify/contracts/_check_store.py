"""Checks of the contract of `sciml.stores.AbstractStore`."""

import concurrent.futures
import pathlib
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..._structure_words import structure_words
from ...stores import AbstractStore, StoreError


def check_store(
    make_store: Callable[[], AbstractStore],
    *,
    tree: PyTree = None,
    reopen: Callable[[AbstractStore], AbstractStore] | None = None,
) -> None:
    """Checks that a store satisfies the requirements of `simulate`, `iterate` and `sweep`; for custom stores.

    The rules: blocks are returned bitwise unchanged, in any order of `put`; a block that is put again replaces
    the first; `like` selects among the arrays and refuses other shapes; a missing block raises `StoreError`; similar
    names, such as "a/b", "a.b" and "A/b", are kept apart or refused; all blocks that several threads put at once exist;
    the manifest is returned unchanged, and only one of several that create one at the same time succeeds. While one run
    holds `lock`, another one is refused. If the store is a folder, every file of a block is removed, cut short and
    changed in turn, and the store must notice.

    Args:
        make_store: Returns a new store that is empty.
        tree: The values to put, a PyTree of arrays with two leaves or more; by default real, integer, boolean and
            complex arrays of three rows, in a dictionary and a list.
        reopen: Returns a store for the same blocks as one that was written to, such as
            `lambda store: NpzStore(store.path)`. A store with a `path` requires it; None is for stores that end with
            the process.

    Raises:
        AssertionError: If the store breaks a rule, which the message names.
        TypeError: If `make_store` is not a function, or it or `reopen` does not return a store, or a store with a
            `path` has no `reopen`.

    Example:
        ```python
        import sciml
        from sciml.stores import AbstractStore, StoreError, from_named, to_named

        class DictStore(AbstractStore):
            def __init__(self):
                self._blocks, self._manifest = {}, None

            def put(self, number, tree):
                self._blocks[number] = to_named(tree)

            def get(self, number, like=None):
                if number not in self._blocks:
                    raise StoreError(f"There is no block {number}.")
                return from_named(self._blocks[number], like)

            def numbers(self):
                return sorted(self._blocks)

            def remove(self, number):
                self._blocks.pop(number, None)

            def read_manifest(self):
                return self._manifest

            def write_manifest(self, manifest):
                self._manifest = manifest

        sciml.verify.check_store(DictStore)
        ```
    """
    if isinstance(make_store, AbstractStore) or not callable(make_store):
        raise TypeError(
            "`check_store` requires a function that returns a new empty store, such as "
            f"`lambda: NpzStore(tempfile.mkdtemp())`, but got {make_store!r}."
        )
    tree = _default() if tree is None else tree

    def fresh() -> AbstractStore:
        return _store_of(make_store(), "make_store")

    def again(store: AbstractStore) -> AbstractStore:
        return store if reopen is None else _store_of(reopen(store), "reopen")

    store = fresh()
    if reopen is None and _is_folder(store):
        raise TypeError(
            f"`check_store` requires `reopen` for a store with a `path`, such as `lambda store: "
            f"{type(store).__name__}(store.path)`: it checks how another process reads the blocks and damaged files."
        )
    _check_empty(store)
    store = fresh()
    other = jax.tree.map(_changed, tree)
    for number, value in ((11, tree), (2, other), (4, tree), (4, other)):
        store.put(number, value)
    for found in (store, again(store)):
        _check(found.numbers() == [2, 4, 11], f"`numbers` of blocks put as 11, 2, 4, 4 are {found.numbers()}")
        _check(found.has(4) and not found.has(3), "`has` returns whether a block exists")
        _check_same(found.get(11, tree), tree, "a block")
        _check_same(found.get(4, tree), other, "a block that was put twice, with its last values,")
        _check_reading(found, tree)
    store.remove(4)
    store.remove(4)
    _check(again(store).numbers() == [2, 11], "`remove` removes one block, and may be called again")
    _refused(lambda: store.get(4), "`get` of a block that was removed")
    _check_same(store.get(2, tree), other, "a block next to a removed one")
    _check_manifest(fresh(), again)
    _check_creation(fresh(), again)
    _check_names(fresh(), again)
    _check_together(fresh(), again, tree)
    _check_lock(fresh(), again)
    if reopen is not None:
        _check_damage(fresh, again, tree)


def _store_of(found: Any, function: str) -> AbstractStore:
    if not isinstance(found, AbstractStore):
        raise TypeError(
            f"`check_store`: `{function}` must return a store, an instance of `sciml.stores.AbstractStore`, but "
            f"returned {found!r}."
        )
    return found


def _default() -> PyTree:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    return {"u": x, "nested": [np.arange(3, dtype=np.int32), x > 2], "z": (x + 1j).astype(np.complex64)}


def _check_empty(store: AbstractStore) -> None:
    _check(list(store.numbers()) == [], "a new store has no blocks")
    _check(not store.has(0), "`has` is false in a new store")
    _check(store.read_manifest() is None, "`read_manifest` of a new store is None")
    _refused(lambda: store.get(0), "`get` of a missing block")
    store.remove(0)


def _check_reading(store: AbstractStore, tree: PyTree) -> None:
    leaves = jax.tree.leaves(tree)
    named = store.get(11)
    _check(isinstance(named, dict) and len(named) == len(leaves), "`get` without `like` returns the arrays by name")
    _check(all(map(_is_array, named.values())), "`get` without `like` returns arrays")
    free = jax.tree.map(lambda _: object(), tree)
    _check_same(store.get(11, free), tree, "a block with a `like` without shapes and dtypes")
    if isinstance(tree, dict):
        name = next(iter(tree))
        _check_same(store.get(11, {name: tree[name]}), {name: tree[name]}, "a part of a block, selected by `like`,")
    _refused(lambda: store.get(11, {"not there": np.zeros(3)}), "`get` of an array that the block does not contain")
    wrong = jax.tree.map(lambda x: jax.ShapeDtypeStruct((7, *jnp.shape(x)), jnp.result_type(x)), tree)
    _refused(lambda: store.get(11, wrong), "`get` with a `like` of other shapes")


def _check_manifest(store: AbstractStore, again: Callable[[AbstractStore], AbstractStore]) -> None:
    store.write_manifest({"kind": "first"})
    manifest = {"kind": "check", "number": 3, "list": [1.5, None, "text"], "nested": {"flag": True}}
    store.write_manifest(manifest)
    for found in (store, again(store)):
        _check(found.read_manifest() == manifest, "`read_manifest` returns the manifest written last")


def _check_creation(store: AbstractStore, again: Callable[[AbstractStore], AbstractStore]) -> None:
    """Checks that only one of several runs that open a new store at the same time writes the manifest."""
    runs = 4
    handles = [again(store) for _ in range(runs)]
    barrier = threading.Barrier(runs)

    def create(run: int) -> bool:
        barrier.wait()
        return handles[run].create_manifest({"run": run})

    with concurrent.futures.ThreadPoolExecutor(runs) as threads:
        created = list(threads.map(create, range(runs)))
    _check(sum(created) == 1, f"one of {runs} concurrent `create_manifest` calls gets True, but {sum(created)} did")
    winner = {"run": created.index(True)}
    _check(not store.create_manifest({"run": -1}), "`create_manifest` is False if a manifest exists")
    _check(
        again(store).read_manifest() == winner, "the manifest belongs to the run for which `create_manifest` is True"
    )


def _check_names(store: AbstractStore, again: Callable[[AbstractStore], AbstractStore]) -> None:
    """Checks that arrays whose names are hard to use as the names of files are kept, or refused by the right error."""
    for number, (kind, names) in enumerate(_NAMES.items()):
        tree: dict[str, Any] = {name: np.full(3, i, np.float32) for i, name in enumerate(names)}
        tree["a"] = {"b": np.full(3, -1, np.float32)}
        try:
            store.put(number, tree)
        except (StoreError, ValueError):
            continue
        except Exception as error:
            raise AssertionError(
                f"A store breaks a rule: {kind} names must be kept or raise `StoreError`, but `put` raised "
                f"{type(error).__name__}: {error}"
            ) from error
        _check_same(again(store).get(number, tree), tree, f"a block of arrays with {kind} names, which `put` accepted,")


_NAMES = {
    "similar": ("a.b", "a_b", "A.b", "a.b.npy", "b", "é", "e\u0301"),
    "unusual": ("", ".", "..", " ", "__b"),
    "long": ("n" * 300, "n" * 299 + "m"),
}
"""The names of arrays, in addition to "a/b", by a word for each block."""


def _check_together(store: AbstractStore, again: Callable[[AbstractStore], AbstractStore], tree: PyTree) -> None:
    """Checks that several threads that put different blocks into a new store at the same time put all of them."""
    handles = [again(store) for _ in range(4)]
    barrier = threading.Barrier(len(handles))

    def put(at: int) -> None:
        barrier.wait()
        handles[at].put(at, tree)

    with concurrent.futures.ThreadPoolExecutor(len(handles)) as threads:
        list(threads.map(put, range(len(handles))))
    found = again(store)
    _check(found.numbers() == list(range(len(handles))), "all blocks that are put at the same time exist")
    for number in range(len(handles)):
        _check_same(found.get(number, tree), tree, "a block that was put concurrently with others")


def _check_lock(store: AbstractStore, again: Callable[[AbstractStore], AbstractStore]) -> None:
    """Checks that one run at a time holds the lock."""
    for _ in range(2):  # it is free again after the first time
        with store.lock():
            _refused(lambda: store.lock().__enter__(), "`lock` of a store that another run holds")
            if type(store).lock is not AbstractStore.lock or _is_folder(store):
                other = again(store)
                _refused(
                    lambda: other.lock().__enter__(), "`lock` of a store that another run holds through another object"
                )


def _is_folder(store: AbstractStore) -> bool:
    try:
        return bool(store.path)
    except StoreError:
        return False


def _check_damage(
    make_store: Callable[[], AbstractStore], reopen: Callable[[AbstractStore], AbstractStore], tree: PyTree
) -> None:
    """Checks that a folder whose files were damaged gives the right block or `StoreError`, never another block."""

    def with_block() -> tuple[AbstractStore, list[pathlib.Path]]:
        store = make_store()
        store.put(3, tree)
        try:
            folder = pathlib.Path(store.path)
        except StoreError:
            return store, []
        return store, sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)

    for at in range(len(with_block()[1])):
        for what, damage in _DAMAGE.items():
            store, files = with_block()
            damage(files[at])
            found = reopen(store)
            try:
                if not found.has(3):
                    continue
                block = found.get(3, tree)
            except StoreError:
                continue
            except Exception as error:
                raise AssertionError(
                    f"A store breaks a rule: `get` of a block whose file {files[at].name!r} was {what} must raise "
                    f"`StoreError`, but raised {type(error).__name__}: {error}"
                ) from error
            _check_same(block, tree, f"a block whose file {files[at].name!r} was {what}, unless it raises,")


def _cut(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


_DAMAGE: dict[str, Callable[[pathlib.Path], Any]] = {
    "removed": pathlib.Path.unlink,
    "cut short": _cut,
    "changed": _flip,
}
"""The damages to files, by a word for each."""


def _check_same(found: PyTree, expected: PyTree, what: str) -> None:
    same = jax.tree.structure(found) == jax.tree.structure(expected)
    _check(same, f"{what} comes back with the structure {structure_words(expected)}")
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(expected), jax.tree.leaves(found), strict=True):
        _check(_bits(x) == _bits(y), f"{what} comes back with the same bits, shape and dtype at {_name(path)}")


def _changed(x: Any) -> Any:
    """Returns an array of the same shape and dtype with other values."""
    if jnp.issubdtype(jnp.asarray(x).dtype, jax.dtypes.prng_key):
        return jax.vmap(lambda key: jax.random.fold_in(key, 1))(x) if jnp.ndim(x) else jax.random.fold_in(x, 1)
    x = np.asarray(x)
    return ~x if x.dtype == bool else (x + np.ones((), x.dtype)).astype(x.dtype)


def _bits(x: Any) -> tuple:
    if _is_key(x):
        return str(jax.random.key_impl(x)), *_bits(jax.random.key_data(x))
    x = np.asarray(x)
    return str(x.dtype), x.shape, x.tobytes()


def _is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray | np.generic | jax.Array)


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path) or "the root"


def _refused(call: Callable[[], Any], what: str) -> None:
    try:
        call()
    except StoreError:
        return
    except Exception as error:
        raise AssertionError(f"{what} must raise `StoreError`, but raised {type(error).__name__}: {error}") from error
    raise AssertionError(f"{what} must raise `StoreError`, but did not raise.")


def _check(holds: bool, rule: str) -> None:
    if not holds:
        raise AssertionError(f"A store breaks a rule: {rule}.")
