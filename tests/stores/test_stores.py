"""Files that are whole or absent, whatever happens to their writer."""

import concurrent.futures
import errno
import itertools
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import time
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sciml
from sciml import verify
from sciml.stores import AbstractStore, NpzStore, StoreError, _atomic
from sciml.stores._fingerprint import Fingerprint, fingerprint
from sciml.stores._manifest import open_run
from sciml.stores._npz_store import MemoryStore

pytestmark = pytest.mark.x64


class Layer(eqx.Module):
    weight: jax.Array
    name: str = eqx.field(static=True, default="layer")

    def __call__(self, x):
        return self.weight * x


TREE = {
    "u": np.arange(6.0).reshape(2, 3),
    "nested": [np.array(3, np.int32), (np.array([True, False]), 1.5)],
    "half": jnp.arange(3, dtype=jnp.bfloat16),
    "file": np.zeros(1),
    "key": jax.random.key(5),
    "keys": jax.random.split(jax.random.key(5, impl="rbg"), 2),
    "complex": np.array([1 + 2j]),
}


def bits(x):
    x = jax.random.key_data(x) if jnp.issubdtype(jnp.asarray(x).dtype, jax.dtypes.prng_key) else x
    x = np.asarray(x)
    return x.dtype, x.shape, x.tobytes()


def test_threads_open_one_folder_at_once(tmp_path):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for folder in [tmp_path / str(number) for number in range(20)]:
            puts = [pool.submit(NpzStore(folder).put, i, {"u": np.ones(3)}) for i in range(8)]
            for put in puts:
                put.result()


def test_a_store_keeps_the_contract(tmp_path):
    count = itertools.count()
    folders = lambda: NpzStore(tmp_path / "deep" / str(next(count)))  # noqa: E731
    verify.check_store(folders, tree=TREE, reopen=lambda store: NpzStore(store.path))
    verify.check_store(MemoryStore, tree=TREE)


def test_names_and_modules(tmp_path):
    store = NpzStore(tmp_path)
    store.put(4, TREE)
    assert set(store.get(4)) == {"u", "nested/0", "nested/1/0", "nested/1/1", "half", "file", "key", "keys", "complex"}
    assert isinstance(store.get(4, TREE)["u"], np.ndarray)
    store.put(0, Layer(np.ones(2)))
    assert store.get(0, Layer(np.zeros(2))).weight.tolist() == [1, 1]
    store.put(1, np.ones(3))
    assert store.get(1).shape == (3,)
    with pytest.raises(ValueError, match="Two arrays would both be stored as `a_b`"):
        store.put(2, {"a_b": np.ones(1), "a/b": np.ones(1)})


@pytest.mark.parametrize(
    "rule, change",
    [
        ("`numbers` of blocks put", {"numbers": lambda self: list(self._blocks)}),
        ("`get` of a missing block", {"get": lambda self, number, like=None: None}),
        (
            "put twice",
            {"put": lambda self, number, tree: number in self._blocks or MemoryStore.put(self, number, tree)},
        ),
        ("same bits", {"get": lambda self, n, like=None: jax.tree.map(abs, MemoryStore.get(self, n, like))}),
        ("`remove` removes one block", {"remove": lambda self, number: None}),
        (
            "returns the manifest written last",
            {"write_manifest": lambda self, manifest: setattr(self, "_manifest", {})},
        ),
    ],
)
def test_a_store_that_breaks_the_contract(rule, change):
    store = type("Store", (MemoryStore,), change)
    with pytest.raises(AssertionError, match=rule):
        verify.check_store(store, tree={"u": -np.arange(6.0).reshape(2, 3), "v": np.ones(2)})


def test_a_run_in_a_store_that_is_no_folder():
    store = type("Store", (MemoryStore,), {})()
    options = dict(t0=0.0, t1=1.0, dt=0.1, save_every=0.5, progress=False)
    run = sciml.simulate(lambda t, y, args: -y, jnp.ones(2), store=store, **options)
    again = sciml.simulate(lambda t, y, args: -y, jnp.ones(2), store=store, **options)
    assert len(run) == 3 and np.array_equal(run.values, again.values)
    with pytest.raises(StoreError, match="is not a folder"):
        store.path  # noqa: B018


class Blocks(AbstractStore):
    """Keeps its blocks somewhere else."""

    def __init__(self, kept):
        self._kept = kept

    def put(self, number, tree):
        self._kept.put(number, tree)

    def get(self, number, like=None):
        return self._kept.get(number, like)

    def numbers(self):
        return self._kept.numbers()

    def remove(self, number):
        self._kept.remove(number)


class Remote(Blocks):
    """Also its manifest."""

    def read_manifest(self):
        return self._kept.read_manifest()

    def write_manifest(self, manifest):
        self._kept.write_manifest(manifest)


class Folder(Blocks):
    """A folder with files of other names."""

    def __init__(self, path):
        super().__init__(NpzStore(path, prefix="other"))

    @property
    def path(self):
        return self._kept.path


def simulated(store, **options):
    given = dict(t0=0.0, t1=1.0, dt=0.1, save_every=0.5, progress=False)
    return sciml.simulate(lambda t, y, args: -y, jnp.ones(2), store=store, **given | options)


def iterated(store, **options):
    return sciml.runs.iterate(lambda y: 0.5 * y, jnp.ones(2), 4, save_every=2, store=store, progress=False, **options)


def swept(store):
    return sciml.parallel.sweep(lambda x: 2 * x, np.arange(4.0), block=2, store=store, progress=False)


def trained(store):
    options = dict(steps=2, optimiser=optax.sgd(0.1), progress=False)
    return sciml.training.train(jnp.ones(()), lambda m, b, k: m**2, checkpoints=store, **options)


def test_a_run_that_cannot_go_on_says_so():
    verify.check_store(lambda: Remote(MemoryStore()))
    store, runs = Remote(MemoryStore()), []
    for _ in range(2):
        with pytest.warns(UserWarning, match="every call starts the run again. Pass `checkpoints="):
            runs.append(simulated(store))
    assert np.array_equal(runs[0].values, runs[1].values)


@pytest.mark.parametrize("call", [simulated, iterated])
@pytest.mark.parametrize(
    "pair",
    [
        lambda path: [NpzStore(path)] * 2,
        lambda path: (path, NpzStore(path / "more" / "..")),
        lambda path: (Folder(path), Folder(path)),
        lambda path: [Remote(MemoryStore())] * 2,
        lambda path: [Remote(kept) for kept in [MemoryStore()] * 2],
    ],
)
def test_checkpoints_do_not_replace_frames(tmp_path, call, pair):
    (tmp_path / "more").mkdir()
    store, checkpoints = pair(tmp_path)
    for _ in range(2):
        with pytest.raises(ValueError, match="`store` and `checkpoints` are the same place"):
            call(store, checkpoints=checkpoints)
    with pytest.raises(ValueError, match="`checkpoints` requires `store`"):
        call(None, checkpoints=checkpoints)


@pytest.mark.parametrize("call", [simulated, iterated, swept, trained])
def test_a_run_is_opened_by_the_class_that_wrote_it(tmp_path, call):
    call(Folder(tmp_path))
    for found in (tmp_path, NpzStore(tmp_path)):
        with pytest.raises(StoreError, match=r"written by a `Folder`. Pass .* as in `Folder\(path\)`"):
            call(found)
    call(type("Later", (Folder,), {})(tmp_path))
    manifest = Folder(tmp_path).read_manifest()
    assert manifest.pop("store") == "Folder"
    Folder(tmp_path).write_manifest(manifest)  # as earlier versions wrote it
    call(Folder(tmp_path))


def test_frames_that_are_not_found(tmp_path):
    simulated(Folder(tmp_path))
    assert len(sciml.runs.read_run(Folder(tmp_path))) == 3
    with pytest.raises(StoreError, match="written by a `Folder`"):
        sciml.runs.read_run(tmp_path)
    simulated(NpzStore(tmp_path / "named", prefix="frames"))
    for call in (simulated, sciml.runs.read_run):
        with pytest.raises(StoreError, match="finds none of the 3 frames of its run.* such as `prefix`"):
            call(tmp_path / "named")


def test_the_text_of_a_store(tmp_path):
    assert repr(NpzStore("runs")) == "NpzStore('runs')" and repr(Folder("runs")) == "Folder('runs')"
    assert repr(MemoryStore()) == "MemoryStore()" and repr(Remote(MemoryStore())) == "Remote()"
    assert repr(Blocks(MemoryStore())) == "Blocks()"


def test_a_store_with_neither_path_nor_manifest():
    with pytest.raises(StoreError, match="`Blocks` is not a folder. Define `path`, or `read_manifest` and"):
        simulated(Blocks(MemoryStore()))
    with pytest.raises(StoreError, match="`Remote` is not a folder. Pass a path as `store`"):
        Remote(MemoryStore()).path  # noqa: B018


def test_a_block_of_another_shape_is_refused(tmp_path):
    store = NpzStore(tmp_path)
    store.put(0, {"u": np.zeros(3)})
    with pytest.raises(StoreError, match=r"`u` as float64\[3\], but float64\[4\] was expected"):
        store.get(0, {"u": np.zeros(4)})
    with pytest.raises(StoreError, match="does not contain `v`"):
        store.get(0, {"v": np.zeros(3)})
    with pytest.raises(StoreError, match="has no block 7; it has 1, from 0 to 0"):
        store.get(7)
    with pytest.raises(TypeError, match="`f` is a function"):
        store.put(1, {"f": lambda: None})


def test_a_damaged_block_is_named(tmp_path):
    store = NpzStore(tmp_path)
    store.put(0, TREE)
    file = next(tmp_path.glob("*.npz"))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(
        StoreError,
        match=r"block_0000000\.npz' cannot be read: it is not a complete npz file of arrays \(BadZip",
    ):
        store.get(0)


def test_no_memory_is_no_damage(tmp_path, monkeypatch):
    store = NpzStore(tmp_path)
    store.put(0, {"u": np.ones(3)})

    def exhausted(*args, **options):
        raise MemoryError

    monkeypatch.setattr(_atomic.np.lib.format, "read_array", exhausted)
    with pytest.raises(MemoryError):
        store.get(0)


@pytest.mark.parametrize("make", [NpzStore, sciml.stores.ZarrStore, sciml.stores.OrbaxStore])
def test_a_store_needs_a_path(make):
    with pytest.raises(ValueError, match="the path of a store is empty. Pass the name of a folder"):
        make("")


def test_check_store_takes_functions(tmp_path):
    with pytest.raises(TypeError, match="requires a function that returns a new empty store|make_store"):
        verify.check_store(NpzStore(tmp_path))
    with pytest.raises(TypeError, match=f"`make_store` must return a store, .* but returned '{tmp_path}'"):
        verify.check_store(lambda: str(tmp_path))
    with pytest.raises(TypeError, match="`reopen` must return a store, .* but returned None"):
        verify.check_store(lambda: NpzStore(tmp_path), reopen=lambda store: None)


def test_check_store_needs_reopen_to_damage_files(tmp_path):
    with pytest.raises(TypeError, match=r"requires `reopen` for a store with a `path`.*Folder\(store.path\)"):
        verify.check_store(lambda: Folder(tmp_path))


class FileNames(MemoryStore):
    """Uses the names of arrays as those of files."""

    longest = 255
    refuses: tuple = ()

    def put(self, number, tree):
        named = sciml.stores.to_named(tree)
        if any(name in self.refuses for name in named):
            raise StoreError("This name is not supported.")
        if any(len(name) > self.longest for name in named):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        if "A.b" in named:  # a disk that does not tell capitals
            named["A.b"] = named["a.b"]
        self._blocks[number] = named


def test_check_store_names_the_rule_of_names():
    with pytest.raises(AssertionError, match="with similar names, which `put` accepted"):
        verify.check_store(type("Store", (FileNames,), {"refuses": (".", "n" * 300)}))
    with pytest.raises(
        AssertionError, match="long names must be kept or raise `StoreError`, but `put` raised OSError: .*File name too"
    ):
        verify.check_store(type("Store", (FileNames,), {"refuses": ("A.b",)}))


def test_one_of_two_creates_a_file(tmp_path, monkeypatch):
    assert _atomic.create(tmp_path / "a", b"1") and not _atomic.create(tmp_path / "a", b"2")
    assert (tmp_path / "a").read_bytes() == b"1"

    def no_links(*args):
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(os, "link", no_links)
    assert _atomic.create(tmp_path / "b", b"1") and not _atomic.create(tmp_path / "b", b"2")
    assert (tmp_path / "b").read_bytes() == b"1" and len(list(tmp_path.iterdir())) == 2


def test_frames_of_another_run_are_refused(tmp_path):
    options = dict(t0=0.0, t1=2.0, dt=0.1, save_every=0.5, progress=False)
    for name, rate in (("one", 1.0), ("two", 2.0)):
        sciml.simulate(lambda t, y, a: -a * y, jnp.ones(2), args=rate, store=tmp_path / name, **options)
    (tmp_path / "two" / "block_0000000.npz").replace(tmp_path / "one" / "block_0000000.npz")
    with pytest.raises(StoreError, match="Block 0 of .* belongs to another run"):
        sciml.runs.read_run(tmp_path / "one")[0]


class FullDisk:
    """Stands for `open` on a disk that takes so many bytes in all."""

    def __init__(self, room, code=errno.ENOSPC):
        self.room, self.code = room, code

    def __call__(self, path, mode):
        file, disk = open(path, mode), self

        class File:
            def write(self, data):
                disk.room -= len(memoryview(data).cast("B"))
                if disk.room < 0:
                    raise OSError(disk.code, os.strerror(disk.code))
                return file.write(data)

            def __enter__(self):
                return self

            def __exit__(self, *exc):
                file.close()

            def __getattr__(self, name):
                return getattr(file, name)

        return File()


def test_a_full_disk(tmp_path, monkeypatch):
    store = NpzStore(tmp_path)
    store.put(0, {"u": np.arange(1000.0)})
    monkeypatch.setattr(_atomic, "open", FullDisk(20_000), raising=False)
    store.put(1, {"u": np.arange(1000.0)})
    with pytest.raises(StoreError, match=r"No space left on device \(the disk is full.*repeat the same call"):
        store.put(0, {"u": np.arange(5000.0)})
    monkeypatch.undo()
    assert store.numbers() == [0, 1]
    assert all(np.array_equal(store.get(i)["u"], np.arange(1000.0)) for i in (0, 1))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["block_0000000.npz", "block_0000001.npz"]


def test_an_unwritable_folder(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot be used: .*Use another folder"):
        NpzStore(tmp_path / "file" / "run").put(0, {"u": np.zeros(1)})

    def refuse(self, *args, **kwargs):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(pathlib.Path, "touch", refuse)  # the superuser may write anywhere
    with pytest.raises(StoreError, match=r"Permission denied \(writing there is not permitted"):
        NpzStore(tmp_path / "run").put(0, {"u": np.zeros(1)})


def test_leftovers_of_the_dead_are_removed_and_those_of_the_living_stay(tmp_path):
    host, own = _atomic._host(), os.getpid()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    parent = os.getppid()
    names = {
        f".block_0000001.npz.0.{host}.{dead.pid}.tmp": False,
        f".block_0000001.npz.0.{host}.{own}.tmp": False,
        f".block_0000002.npz.0.{host}.{parent}.tmp": True,
        ".block_0000003.npz.0.another-host.1.tmp": True,
        ".block_0000004.npz.0.another-host.1.tmp": False,
        ".editor.tmp": True,
    }
    for name in names:
        (tmp_path / name).write_text("half")
    os.utime(tmp_path / ".block_0000004.npz.0.another-host.1.tmp", (0, time.time() - 1e6))
    NpzStore(tmp_path).put(0, {"u": np.zeros(1)})
    for name, stays in names.items():
        assert (tmp_path / name).exists() == stays, name


def test_a_killed_writer_leaves_whole_files(tmp_path):
    """Kills a process that only writes, at moments of any kind."""
    code = """
        import importlib.util, sys, types, numpy as np
        sys.modules["sciml"] = types.ModuleType("sciml")  # without JAX, to be quick
        spec = importlib.util.spec_from_file_location("atomic", sys.argv[1])
        atomic = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(atomic)
        i = 0
        while True:
            atomic.write_npz(f"{sys.argv[2]}/block_{i % 7}.npz", {"a": np.full(200_000, float(i)), "b": np.array(i)})
            i += 1
            print(i, flush=True)
    """
    arguments = [sys.executable, "-c", textwrap.dedent(code), _atomic.__file__, str(tmp_path)]
    for wait in (0.005, 0.02, 0.05):
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as writer:
            for _ in range(3):
                writer.stdout.readline()
            time.sleep(wait)
            writer.send_signal(signal.SIGKILL)
        files = list(tmp_path.glob("*.npz"))
        assert files
        for file in files:
            block = _atomic.read_npz(file)
            assert np.all(block["a"] == block["b"])
    _atomic.clear_leftovers(tmp_path)
    assert not list(tmp_path.glob(".*"))


SCALE = 2.0


def helper(y):
    return SCALE * y


def field(t, y, args):
    return helper(y)


def shift(by):
    return lambda x: x + by


def test_a_fingerprint_says_what_differs():
    rate = jnp.array(2.0)

    def parts(**changes):
        values = dict(
            model=Layer(jnp.ones(2)),
            y0=jnp.zeros(3),
            key=jax.random.key(1),
            fn=lambda x: rate * x,
            options={"rtol": 1e-3},
        )
        return fingerprint(**(values | changes))

    first = parts()
    nested = [
        fingerprint(options={"solver": {"rtol": x, "name": "Tsit5"}, "rates": jnp.full(9, x)}) for x in (1.0, 2.0)
    ]
    assert nested[0].differences(nested[1]) == [
        "`options['rates']`: the description is the same (float64[9]), but its values or its code differ",
        "`options['solver']['rtol']`: 1.0 before, 2.0 now",
    ]
    assert (
        parts(fn=shift(1))
        .differences(parts(fn=shift(2)))[0]
        .startswith("`fn`: the description is the same (tests.stores")
    )
    assert parts(fn=shift(1)) == parts(fn=shift(1))
    renamed = types.FunctionType(field.__code__.replace(co_name="slope", co_qualname="slope"), globals(), "slope")
    assert parts(fn=field).digest == parts(fn=renamed).digest
    assert first.digest == parts().digest and not first.differences(parts())
    assert Fingerprint.from_json(first.to_json()) == first
    for name, other, said in [
        ("model", Layer(jnp.array([1.0, 2.0])), r"float64\[2\] \[1.0, 1.0\] before, float64\[2\] \[1.0, 2.0\] now"),
        ("model", Layer(jnp.ones(2), "other"), "the description is the same"),
        ("y0", jnp.zeros(3, jnp.float32), r"float64\[3\] .* before, float32\[3\] .* now"),
        ("y0", jnp.zeros(5), r"float64\[3\] .* before, float64\[5\] now"),
        ("key", jax.random.key(2), "the description is the same"),
        ("fn", lambda x: rate + x, "lambda> before, "),
        ("options", {"rtol": 1e-4}, r"`options\['rtol'\]`: 0.001 before, 0.0001 now"),
        ("options", {"rtol": 1e-3, "atol": 1}, r"`options\['atol'\]`: absent before, 1 now"),
    ]:
        (line,) = first.differences(parts(**{name: other}))
        assert line.startswith(f"`{name}"), line
        assert re.search(said, line), line
    assert len(first.differences(fingerprint(model=1))) == 5


def test_a_function_is_known_by_what_it_reads(monkeypatch):
    first = fingerprint(model=field)
    assert first == fingerprint(model=field)
    with monkeypatch.context() as changed:
        changed.setattr(sys.modules[__name__], "SCALE", 3.0)
        assert first.differences(fingerprint(model=field))
    with monkeypatch.context() as changed:
        changed.setattr(sys.modules[__name__], "helper", lambda y: y)
        assert first.differences(fingerprint(model=field))
    with monkeypatch.context() as changed:
        before = fingerprint(model=Layer(jnp.ones(1)))
        changed.setattr(Layer, "__call__", lambda self, x: x)
        assert before.differences(fingerprint(model=Layer(jnp.ones(1))))
    assert first == fingerprint(model=field)


def test_a_fingerprint_is_the_same_in_another_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import functools, sys, diffrax, equinox as eqx, jax, jax.numpy as jnp, numpy as np, sciml
        from sciml.stores._fingerprint import fingerprint
        table = {"a": np.arange(3), "b": {1, 2, "three"}}
        class Model(eqx.Module):
            net: eqx.nn.MLP
            def __call__(self, t, y, args):
                return jnp.tanh(self.net(y)) * table["a"].sum() + (3 if len(y) in {1, 2, 3} else 4)
        model = Model(eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)))
        found = fingerprint(
            model=model, lorenz=sciml.models.Lorenz63(), solver=diffrax.Kvaerno5(), jitted=jax.jit(lambda x: x + 1),
            filtered=eqx.filter_jit(lambda x: x * 2), part=functools.partial(jnp.add, 1), relu=jax.nn.relu, sin=np.sin,
            stepsize_controller=diffrax.PIDController(1e-3, 1e-6), solve=sciml.solve,
        )
        print(found.digest)
    """)
    )
    digests = set()
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(pathlib.Path(_atomic.__file__).parents[2])}
        out = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, check=False)
        assert out.returncode == 0, out.stderr
        digests.add(out.stdout)
    assert len(digests) == 1


def test_what_has_no_fingerprint_is_refused():
    with pytest.raises(TypeError, match=r"`model.* is a generator, whose contents cannot be compared"):
        fingerprint(model={"a": (i for i in range(3))})
    with pytest.raises(TypeError, match="`y0` is traced"):
        jax.jit(lambda x: fingerprint(y0=x) and x)(1.0)


def test_a_store_belongs_to_one_run(tmp_path):
    store, one, two = NpzStore(tmp_path), fingerprint(rate=1.0), fingerprint(rate=2.0)
    manifest = open_run(store, one, {"n": 3}, kind="sweep", resume=False)
    assert manifest["n"] == 3 and NpzStore(tmp_path).read_manifest() == manifest
    assert open_run(store, one, {"n": 3}, kind="sweep", resume=True) == manifest
    with pytest.raises(StoreError, match="already contains a run.*resume=True"):
        open_run(store, one, {}, kind="sweep", resume=False)
    with pytest.raises(StoreError, match="(?s)cannot be resumed:\n  `rate`: 1.0 before, 2.0 now\n"):
        open_run(store, two, {}, kind="sweep", resume=True)
    with pytest.raises(StoreError, match="written by `sweep`, not by `simulate`"):
        open_run(store, one, {}, kind="simulate", resume=True)
    stray = NpzStore(tmp_path / "stray")
    stray.put(0, {"u": np.zeros(1)})
    with pytest.raises(StoreError, match="blocks but no manifest"):
        open_run(stray, one, {}, kind="sweep", resume=True)


def test_a_run_that_comes_second_by_a_moment_is_refused(tmp_path):
    class Early(NpzStore):
        """Was looked at before the other run had written its manifest."""

        looked = False

        def read_manifest(self):
            if self.looked:
                return super().read_manifest()
            self.looked = True
            return None

    options = dict(t0=0.0, t1=1.0, dt=0.1, save_every=0.5, progress=False)
    field = lambda t, y, rate: -rate * y  # noqa: E731
    first = sciml.simulate(field, jnp.ones(2), args=1.0, store=NpzStore(tmp_path), **options)
    for block in first.store.numbers():
        first.store.remove(block)
    with pytest.raises(StoreError, match="contains a different run"):
        sciml.simulate(field, jnp.ones(2), args=3.0, store=Early(tmp_path), **options)
