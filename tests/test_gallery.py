"""The pictures of the gallery are drawn as a user draws them, and say what is kept."""

import importlib.util
import inspect
import os
import pathlib
import re
import subprocess
import sys

import pytest

import sciml

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAMES = ("cahn_hilliard", "klein_gordon")
PAGES = (
    *("pde_gallery", "geometry", "noise", "model_gallery", "flows", "waves", "getting_started", "all_models"),
    "neural_models",
)


def drawn(tmp_path, page, names, *options, as_users=False):
    """What a script prints; the tests are compiled in little time and run slowly, unless it is run as users do."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(ROOT / f"docs/guides/{page}.py"), "--out", str(tmp_path), *options, *names]
    optimised = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "XLA_FLAGS": ""} if as_users else {}
    environment = {**os.environ, **optimised, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert {file.name for file in tmp_path.iterdir()} == {f"{name}.png" for name in names}
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in tmp_path.iterdir())
    return done.stdout


def test_pictures_are_drawn(tmp_path):
    printed = drawn(tmp_path, "pde_gallery", NAMES)
    assert "energy falls at every step: True" in printed
    kept = re.findall(r"energy ([\d.]+) to ([\d.]+), by VelocityVerlet", printed)
    assert len(kept) == 2 and all(abs(float(a) / float(b) - 1) < 0.01 for a, b in kept)


def test_diagrams_are_drawn(tmp_path):
    """The one of the roofline has the numbers that the chapter shows."""
    names = ("shardings", "halo", "roofline")
    command = [sys.executable, str(ROOT / "docs/figures/diagrams.py"), "--out", str(tmp_path), *names]
    subprocess.run(command, capture_output=True, timeout=600, check=True)
    for name in names:
        made, kept = ((folder / f"{name}.svg").read_text() for folder in (tmp_path, ROOT / "docs/figures"))
        assert re.findall(r">([^<>]+)</text>", made) == re.findall(r">([^<>]+)</text>", kept) != []


def test_pictures_of_noise_are_drawn(tmp_path):
    printed = drawn(tmp_path, "noise", ("noise_paths", "noise_neuron", "noise_reactions"))
    assert "spikes grow with the noise: True" in printed
    mean, exact = re.search(r"mean at the end ([\d.]+), exact ([\d.]+)", printed).groups()
    assert abs(float(mean) - float(exact)) < 0.02
    assert all(abs(float(x) - 10) < 0.4 for x in re.search(r"means ([\d.]+) ([\d.]+)", printed).groups())


def test_pictures_of_jumps_are_drawn(tmp_path):
    """Those that are quick to draw."""
    printed = drawn(tmp_path, "model_gallery", ("bouncing_ball", "integrate_and_fire", "diffusions"))
    assert float(re.search(r"eight bounces are (\S+) off", printed)[1]) < 1e-3
    spikes, exact = map(float, re.search(r"4 nA: (\d+), exact ([\d.]+)", printed).groups())
    assert spikes == int(exact)
    found = re.findall(r": deviation (\S+), exact (\S+)", printed)
    assert len(found) == 2 and all(abs(float(a) / float(b) - 1) < 0.05 for a, b in found)


def test_the_first_picture_is_drawn(tmp_path):
    printed = drawn(tmp_path, "getting_started", ("getting_started",))
    one, low, high = map(float, re.search(r"([\d.]+) alone, ([\d.]+) to ([\d.]+)", printed).groups())
    assert low < one < high


def test_pictures_of_all_other_models_are_drawn(tmp_path):
    printed = drawn(tmp_path, "all_models", ("models_ordinary", "models_lines"))
    assert float(re.search(r"energy differs by (\S+) around", printed)[1]) < 1e-4
    assert float(re.search(r"comes back to (\S+)", printed)[1]) < 1e-6
    kept = re.findall(r"keeps its \w+ to (\S+)", printed)
    assert len(kept) == 2 and all(float(x) < 1e-4 for x in kept)


def test_every_model_is_in_the_gallery():
    """With its picture, or where that is."""
    page = (ROOT / "docs/guides/all_models.md").read_text()
    names = [name for name in dir(sciml.models) if name[0] != "_" and not inspect.ismodule(getattr(sciml.models, name))]
    names.remove("TYPE_CHECKING")
    assert len(names) > 50 and [name for name in names if f"`{name}`" not in page] == []


def test_pictures_of_flows_are_drawn(tmp_path):
    printed = drawn(tmp_path, "flows", ("flows_shock_tube", "flows_dam_break"))
    errors = [float(x) for x in re.findall(r"density ([\d.]+)", printed)]
    assert len(errors) == 3 and errors == sorted(errors, reverse=True) and errors[-1] < 0.006
    assert "1.000000 of it is there" in printed and "least depth -" not in printed


def test_the_picture_of_a_closure_is_drawn(tmp_path):
    printed = drawn(tmp_path, "neural_models", ("neural_closure",), "--steps", "200", as_users=True)
    assert float(re.search(r"closure [\d.]+: ([\d.]+) times less", printed)[1]) > 1.5
    assert float(re.search(r"cells hold changed by (\S+)", printed)[1]) < 1e-6
    assert "at equal error" in printed


@pytest.mark.parametrize("page", PAGES)
def test_every_picture_is_committed_and_shown(page):
    drawn = re.search(r"^PICTURES = \(([^)]*)\)", (ROOT / f"docs/guides/{page}.py").read_text(), re.MULTILINE)
    page = (ROOT / f"docs/guides/{page}.md").read_text()
    names = {name.strip() for name in drawn[1].split(",") if name.strip()}
    assert set(re.findall(r"\(figures/(\w+)\.png\)", page)) == names
    assert all((ROOT / f"docs/guides/figures/{name}.png").is_file() for name in names)


@pytest.mark.x64
def test_the_numbers_of_neighbouring_axes_do_not_meet():
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("pde_gallery", ROOT / "docs/guides/pde_gallery.py")
    assert spec is not None and spec.loader is not None
    gallery = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gallery)
    for ends, size in (((-8, 8), (9.0, 4.0)), ((-20, 20), (9.0, 4.0))):
        figure, axes = gallery.panels(2, size, sharey=True)
        for ax in axes:
            ax.set_xlim(*ends)
        figure.canvas.draw()
        drawn = [[t for t in ax.get_xticklabels() if ends[0] <= t.get_position()[0] <= ends[1]] for ax in axes]
        left, right = drawn[0][-1], drawn[1][0]
        gap = right.get_window_extent().x0 - left.get_window_extent().x1
        gallery.plt.close(figure)
        assert gap > 10  # pixels
