"""Draw the diagrams of guides, lessons and chapters: `python docs/figures/diagrams.py`, or `... halo roofline`."""

import argparse
import pathlib
import re

import matplotlib
import numpy as np

matplotlib.use("Agg")  # pictures go to files; no screen is needed
import matplotlib.pyplot as plt

HERE = pathlib.Path(__file__).parent
CHAPTER = HERE.parent / "scale" / "machine.md"
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
plt.rcParams |= {"font.size": 12, "svg.fonttype": "none", "svg.hashsalt": "diagrams"}


def shardings():
    """The device of each block of an array of two dimensions, on a mesh of 4 x 2 devices."""
    figure, axes = plt.subplots(1, 4, figsize=(10, 3.0), layout="constrained")
    specs = {'P("x", "y")': (4, 2), 'P("x", None)': (4, 1), 'P(None, "y")': (1, 2), "P(None, None)": (1, 1)}
    for ax, (name, (rows, columns)) in zip(axes, specs.items()):
        for i in range(rows):
            for j in range(columns):
                owners = [2 * x + y for x in range(4) for y in range(2) if x * rows // 4 == i and y * columns // 2 == j]
                corner = (j / columns, 1 - (i + 1) / rows)
                for k, device in enumerate(owners):  # copies, side by side in one block
                    width = 1 / columns / len(owners)
                    place = (corner[0] + k * width, corner[1])
                    ax.add_patch(plt.Rectangle(place, width, 1 / rows, color=COLOURS[device], linewidth=0, alpha=0.6))
                    middle = place[0] + width / 2, place[1] + 0.5 / rows
                    ax.text(*middle, str(device), ha="center", va="center")
                ax.add_patch(plt.Rectangle(corner, 1 / columns, 1 / rows, fill=False, edgecolor="black", linewidth=1.2))
        ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal", title=name)
        ax.set_axis_off()
    return figure


def halo():
    """A block with its ghost cells, which come from the neighbours."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", width_ratios=(1, 1.15))
    for i in range(4):
        for j in range(2):
            left.add_patch(plt.Rectangle((i, j), 1, 1, facecolor=COLOURS[2 * i + j], alpha=0.5, edgecolor="black"))
            left.text(i + 0.5, j + 0.5, f"device {2 * i + j}", ha="center", va="center", fontsize=11)
    left.set(xlim=(-0.05, 4.05), ylim=(-0.05, 2.05), aspect="equal")
    left.set_title("a field on 4 x 2 devices")
    n = 6
    ghosts = {
        "device 1": ((-1, 0), (1, n), COLOURS[1]),
        "device 5": ((n, 0), (1, n), COLOURS[5]),
        "boundary": ((0, n), (n, 1), "0.8"),
        "device 2": ((0, -1), (n, 1), COLOURS[2]),
        "device 0": ((-1, -1), (1, 1), COLOURS[0]),
        "device 4": ((n, -1), (1, 1), COLOURS[4]),
        "corners": ((-1, n), (1, 1), "0.8"),
        "others": ((n, n), (1, 1), "0.8"),
    }
    right.add_patch(plt.Rectangle((0, 0), n, n, facecolor=COLOURS[3], alpha=0.5, edgecolor="none"))
    for corner, (width, height), colour in ghosts.values():
        right.add_patch(plt.Rectangle(corner, width, height, facecolor=colour, alpha=0.5, edgecolor="none"))
    for k in range(n + 1):
        right.plot([-1, n + 1], [k, k], color="white", linewidth=1.5)
        right.plot([k, k], [-1, n + 1], color="white", linewidth=1.5)
    right.add_patch(plt.Rectangle((0, 0), n, n, fill=False, edgecolor="black", linewidth=1.5))
    right.text(n / 2, n / 2, "the block\nof device 3", ha="center", va="center")
    style = dict(arrowprops=dict(arrowstyle="->", linewidth=1.5), va="center")
    right.annotate("device 1", (-0.4, n / 2), (-1.6, n / 2), ha="right", **style)
    right.annotate("device 5", (n + 0.4, n / 2), (n + 1.6, n / 2), ha="left", **style)
    right.annotate("device 2", (n / 2, -0.4), (n / 2, -1.9), ha="center", **style)
    right.text(n / 2, n + 1.15, "boundary condition", ha="center", va="bottom")
    right.set(xlim=(-4.2, n + 4.2), ylim=(-2.4, n + 2), aspect="equal")
    right.set_title("ghost cells of device 3, for domain.pad(u, 1)")
    for ax in (left, right):
        ax.set_axis_off()
    return figure


def roofline():
    """The roof of the machine of the chapter, and its program with a variable number of terms, as recorded."""
    text = CHAPTER.read_text()
    flops = 1e9 * float(re.search(r", ([\d.]+) in other operations", text)[1])
    memory = 1e9 * float(re.search(r"([\d.]+) GB/s in memory", text)[1])
    cache = 1e9 * float(re.search(r"([\d.]+) GB/s in a cache", text)[1])
    ridge = float(re.search(r"ridge: ([\d.]+) operations", text)[1])
    slope = flops / ridge  # of an array of this size
    found = re.findall(r"^ *(\d+) terms, ([\d.]+) for a byte: .* measured ([\d.]+) ms", text, re.MULTILINE)
    figure, ax = plt.subplots(figsize=(7.5, 4.4), layout="constrained")
    x = np.geomspace(0.05, 20, 200)
    for rate, name, colour in ((cache, "in a cache", "#56B4E9"), (memory, "in memory", "#0072B2")):
        ax.loglog(
            x, np.minimum(flops, rate * x) / 1e9, color=colour, linewidth=1.5, label=f"{rate / 1e9:.0f} GB/s, {name}"
        )
    ax.loglog(
        x, np.minimum(flops, slope * x) / 1e9, color="black", linewidth=2, label=f"{slope / 1e9:.0f} GB/s, this array"
    )
    for terms, intensity, milliseconds in found:
        rate = 32 * 2 * int(terms) * 2**22 / (1e-3 * float(milliseconds))
        ax.plot(float(intensity), rate / 1e9, "o", color="#D55E00", markersize=8)
        beside = terms != "16"
        place = dict(
            xytext=(-10, 6) if beside else (0, -20), textcoords="offset points", ha="right" if beside else "center"
        )
        ax.annotate(f"{terms} term" + "s" * (terms != "1"), (float(intensity), rate / 1e9), **place)
    ax.text(20, 1.1 * flops / 1e9, "compute-bound", ha="right", va="bottom")
    ax.text(
        0.055, 1.4 * slope * 0.055 / 1e9, "memory-bound", rotation=38, va="bottom", ha="left", rotation_mode="anchor"
    )
    ax.set(xlabel="operations for a byte", ylabel="billions of operations a second", ylim=(1, 3 * flops / 1e9))
    ax.legend(frameon=False, loc="lower right")
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def elliptic():
    """A plate with a block that conducts well: the solution, and the sensitivity of the inflow."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)  # the block would show the rounding of float32
    from sciml.spatial import Boundaries, Dirichlet, EllipticOperator, Grid, Neumann, solve_elliptic

    grid = Grid((96, 72), lower=(0.0, 0.0), upper=(2.0, 1.5))
    walls = Boundaries(grid, {"x-": Dirichlet(1.0), "x+": Dirichlet(0.0), "y": Neumann(0.0)})
    x, y = grid.centers
    inside = (abs(x - 0.9) < 0.3) & (abs(y - 0.65) < 0.3)
    k = jnp.where(inside, 1000.0, 1.0)

    def solved(k):
        u = solve_elliptic(EllipticOperator(walls, k), jnp.zeros(grid.shape))
        return jnp.sum(2 * k[0] * (1 - u[0])) * grid.spacing[1] / grid.spacing[0], u

    (_, u), sensitivity = jax.jit(jax.value_and_grad(solved, has_aux=True))(k)
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    relative = np.asarray(sensitivity * k)  # of the logarithm of k
    shown = ((u, "u", "cividis", None), (relative, "sensitivity of the inflow", "Blues", "0.99"))
    for ax, (field, title, cmap, most) in zip(axes, shown):
        top = np.quantile(field, float(most)) if most else None
        options = dict(origin="lower", extent=(0, 2, 0, 1.5), cmap=cmap, vmin=0, vmax=top)
        figure.colorbar(ax.imshow(np.asarray(field).T, **options), ax=ax, shrink=0.85)
        ax.contour(np.ravel(x), np.ravel(y), np.asarray(inside, float).T, levels=[0.5], colors="#D55E00")
        ax.set(xlabel="x", ylabel="y")
        ax.set_title(title, loc="left", fontsize="medium")
    axes[0].contour(
        np.ravel(x), np.ravel(y), np.asarray(u).T, levels=np.arange(0.1, 1, 0.1), colors="white", linewidths=0.8
    )
    return figure


def temporal_blocking():
    """A tile of a kernel that takes three steps for each pass over memory: its halo is used up step by step."""
    figure, ax = plt.subplots(figsize=(9, 2.9), layout="constrained")
    steps, width, halo = 3, 8, 3
    for k in range(steps + 1):
        for cell in range(-halo + k, width + halo - k):
            inside = 0 <= cell < width
            face = "0.5" if k == 0 and not inside else COLOURS[0]
            alpha = 0.75 if k in (0, steps) and inside else 0.3
            ax.add_patch(
                plt.Rectangle((cell, 1.4 * k), 1, 1, facecolor=face, alpha=alpha, edgecolor="white", linewidth=2)
            )
    names = [
        "read from memory, with a halo of 3 cells",
        "step 1, in fast memory",
        "step 2, in fast memory",
        "step 3, written to memory",
    ]
    for k, name in enumerate(names):
        ax.text(width + halo + 0.4, 1.4 * k + 0.5, name, va="center")
    ax.annotate("", (-halo - 0.5, 1.4 * steps + 1), (-halo - 0.5, 0), arrowprops=dict(arrowstyle="->", linewidth=1.5))
    ax.text(-halo - 0.7, 2.6, "time", rotation=90, ha="right", va="center")
    ax.text(width / 2, -0.25, "the tile", ha="center", va="top")
    ax.plot([0, 0, width, width], [-0.1, -0.2, -0.2, -0.1], color="black", linewidth=1)
    ax.set(xlim=(-halo - 2.2, width + halo + 11.5), ylim=(-1.0, 1.4 * steps + 1.3), aspect="equal")
    ax.set_axis_off()
    return figure


def segments():
    """A run in segments: the host writes the frames of one while the device computes the next, and a crash."""
    figure, ax = plt.subplots(figsize=(10, 2.4), layout="constrained")

    def box(start, row, width, text, colour, **style):
        ax.add_patch(
            plt.Rectangle(
                (start, row), width, 0.7, facecolor=colour, alpha=0.6, edgecolor="black", linewidth=1, **style
            )
        )
        ax.text(start + width / 2, row + 0.35, text, ha="center", va="center", fontsize=10)

    for shift, first, last in ((0.0, 1, 4), (9.6, 3, 4)):
        for k in range(first, last + 1):
            start = shift + 2 * (k - first)
            crashes = shift == 0 and k == last
            box(
                start,
                1,
                1.3 if crashes else 1.9,
                f"segm. {k}" if crashes else f"segment {k}",
                COLOURS[0],
                linestyle="--" if crashes else "-",
            )
            if not crashes and (shift or k < 3):
                box(start + 2, 0, 1.5, f"frames {k}", COLOURS[2])
    box(5.6, 0, 1.6, "checkpoint", COLOURS[1])
    ax.plot([7.4, 7.4], [-0.3, 2.0], color=COLOURS[5], linewidth=2)
    ax.text(7.4, 2.05, "crash", color=COLOURS[5], ha="center", va="bottom")
    style = dict(arrowstyle="->", linewidth=1.5, connectionstyle="arc3,rad=0.35")
    ax.annotate("", (9.6, 1.0), (6.4, -0.05), arrowprops=style)
    ax.text(9.9, 0.35, "the same\ncall again", ha="left", va="center", fontsize=10)
    for row, name in ((1, "device"), (0, "host")):
        ax.text(-0.3, row + 0.35, name, ha="right", va="center")
    ax.set(xlim=(-1.6, 15.4), ylim=(-0.7, 2.5))
    ax.set_axis_off()
    return figure


PICTURES = {
    shardings: "svg",
    halo: "svg",
    roofline: "svg",
    elliptic: "png",
    temporal_blocking: "svg",
    segments: "svg",
}


def main():
    """Draws all of them, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for draw, kind in PICTURES.items():
        if not given.names or draw.__name__ in given.names:
            path = given.out / f"{draw.__name__}.{kind}"
            draw().savefig(path, **({"metadata": {"Date": None}} if kind == "svg" else {"dpi": 110}))
            print(f"wrote {path}", flush=True)


if __name__ == "__main__":
    main()
