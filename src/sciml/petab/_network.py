"""Neural networks in the YAML format of PEtab SciML, whose names, arguments and arrays are PyTorch's."""

import functools
import math
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import Key

_Weights = Mapping[str, Array]
_Options = Mapping[str, Any]


class PEtabNetwork(eqx.Module):
    """A neural network of a problem that was read from YAML; `PEtabProblem.networks` returns it.

    Its inputs have PyTorch's order of dimensions, `(channels, height, width)` for images, with or without a dimension
    of samples in front. A layer of dropout returns its mean, and batch normalisation takes mean and variance of the
    given samples.

    Attributes:
        parameters: The arrays of each layer by the layer's identifier, such as `weight` and `bias`.
    """

    parameters: dict[str, dict[str, Array]]
    _text: str = eqx.field(static=True)

    @property
    def name(self) -> str:
        """The identifier of the network."""
        return str(_content(self._text)["nn_model_id"])

    @property
    def inputs(self) -> tuple[str, ...]:
        """The identifiers of the inputs, in the order of arguments."""
        return tuple(str(x["input_id"]) for x in _content(self._text)["inputs"])

    def __call__(self, *inputs: Float[Array, "..."]) -> Any:
        """Returns the output, or a tuple of several ones.

        Raises:
            ValueError: If the number of inputs is another one.
        """
        content = _content(self._text)
        layers = {x["layer_id"]: x for x in content["layers"]}
        names = [node["target"] for node in content["forward"] if node["op"] == "placeholder"]
        if len(inputs) != len(names):
            raise ValueError(f"the network `{self.name}` has {len(names)} inputs, but {len(inputs)} are given.")
        arrays = jax.tree.leaves(self.parameters) or [jnp.asarray(inputs[0])]
        found: dict[str, Any] = {}

        def value(x: Any) -> Any:
            if isinstance(x, list):
                return [value(part) for part in x]
            return found.get(x, x) if isinstance(x, str) else x

        for node in content["forward"]:
            args, options = value(node.get("args") or []), node.get("kwargs") or {}
            if node["op"] == "placeholder":
                found[node["name"]] = jnp.asarray(inputs[names.index(node["target"])], arrays[0].dtype)
            elif node["op"] == "call_module":
                layer = layers[node["target"]]
                weights = self.parameters.get(node["target"], {})
                found[node["name"]] = _layer(layer)(weights, layer.get("args") or {}, *args)
            elif node["op"] == "output":
                return args[0] if len(args) == 1 and not isinstance(args[0], list) else tuple(jax.tree.leaves(args))
            else:
                found[node["name"]] = _function(node["target"])(*args, **{k: value(v) for k, v in options.items()})
        raise ValueError(f"the network `{self.name}` has no output.")


def read_network(
    source: str | os.PathLike, *, arrays: str | os.PathLike | None = None, key: Key | None = None
) -> PEtabNetwork:
    """Reads a neural network in the YAML format of PEtab SciML.

    Args:
        source: The file, or YAML as text.
        arrays: An HDF5 file with its parameters.
        key: A random key, to draw parameters from as PyTorch does. Without arrays and key they are NaN.

    Raises:
        ImportError: If PyYAML, or h5py for `arrays`, is not installed: `pip install 'sciml-jax[sbml]'`.
        FileNotFoundError: If there is no such file.
        ValueError: If it is not such a network, or has an unsupported layer or function, which the message names.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.petab._network import read_network

        text = '''
        nn_model_id: net
        inputs: [{input_id: x}]
        layers:
        - {layer_id: layer1, layer_type: Linear, args: {in_features: 2, out_features: 3}}
        forward:
        - {name: x, op: placeholder, target: x}
        - {name: layer1, op: call_module, target: layer1, args: [x]}
        - {name: tanh, op: call_method, target: tanh, args: [layer1]}
        - {name: output, op: output, target: output, args: [tanh]}
        '''
        net = read_network(text, key=jax.random.key(0))
        assert net.parameters["layer1"]["weight"].shape == (3, 2)
        assert net(jnp.ones(2)).shape == (3,)
        ```
    """
    text = source if isinstance(source, str) and "\n" in source else pathlib.Path(source).read_text()
    content = _content(text)
    if not isinstance(content, dict) or not {"nn_model_id", "inputs", "layers", "forward"} <= content.keys():
        raise ValueError("a network in YAML must have `nn_model_id`, `inputs`, `layers` and `forward`.")
    for node in content["forward"]:
        if node["op"] not in ("placeholder", "call_module", "output"):
            _function(node["target"])
    parameters: dict[str, dict[str, Array]] = {}
    for number, layer in enumerate(content["layers"]):
        _layer(layer)
        shapes = _shapes(layer["layer_type"], layer.get("args") or {})
        if shapes:
            own = None if key is None else jax.random.fold_in(key, number)
            parameters[layer["layer_id"]] = _drawn(layer["layer_type"], shapes, own)
    net = PEtabNetwork(parameters, text)
    if arrays is None:
        return net
    found = read_arrays(arrays).get("parameters", {}).get(net.name, {})
    return eqx.tree_at(lambda n: n.parameters, net, with_arrays(net.name, parameters, found))


def with_arrays(name: str, parameters: Mapping[str, Mapping[str, Array]], found: Mapping[str, Any]) -> dict:
    """Returns the parameters of a network from the arrays of a file.

    Raises:
        ValueError: If an array is missing or has another shape.
    """
    result: dict[str, dict[str, Array]] = {}
    for layer, own in parameters.items():
        result[layer] = {}
        for array, value in own.items():
            other = found.get(layer, {}).get(array)
            if other is None:
                raise ValueError(f"the array files do not have `parameters/{name}/{layer}/{array}`.")
            if np.shape(other) != value.shape:
                raise ValueError(
                    f"the array `parameters/{name}/{layer}/{array}` must have shape {value.shape}, not "
                    f"{np.shape(other)}."
                )
            result[layer][array] = jnp.asarray(other, value.dtype)
    return result


def read_arrays(path: str | os.PathLike) -> dict[str, Any]:
    """Returns the groups and arrays of an HDF5 file as dictionaries.

    Raises:
        ImportError: If h5py is not installed.
    """
    try:
        import h5py  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("arrays of PEtab SciML require h5py: `pip install 'sciml-jax[sbml]'`.") from error

    def read(group: Any) -> dict[str, Any]:
        return {str(k): read(x) if hasattr(x, "items") else np.asarray(x[()]) for k, x in group.items()}

    with h5py.File(path, "r") as file:
        return read({key: x for key, x in file.items() if key != "metadata"})


@functools.lru_cache(maxsize=64)
def _content(text: str) -> dict:
    try:
        import yaml
    except ImportError as error:
        raise ImportError("networks of PEtab SciML require PyYAML: `pip install 'sciml-jax[sbml]'`.") from error
    return yaml.safe_load(text)


# ---- parameters


def _shapes(kind: str, o: _Options) -> dict[str, tuple[int, ...]]:
    """The shapes of a layer's arrays."""
    bias = o.get("bias", True)
    if kind == "Linear":
        weight, out = (o["out_features"], o["in_features"]), o["out_features"]
    elif kind == "Bilinear":
        weight, out = (o["out_features"], o["in1_features"], o["in2_features"]), o["out_features"]
    elif kind.startswith("Conv"):
        window, groups = _each(o["kernel_size"], int(kind[-2])), o.get("groups", 1)
        ends = (o["out_channels"], o["in_channels"] // groups)
        if kind.startswith("ConvTranspose"):
            ends = (o["in_channels"], o["out_channels"] // groups)
        weight, out = (*ends, *window), o["out_channels"]
    elif "Norm" in kind:
        shape = o.get("normalized_shape", o.get("num_features"))
        weight = tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
        learned = o.get("elementwise_affine", o.get("affine", not kind.startswith("Instance")))
        # only the first of these layers has `bias`, the others have both arrays or none
        return ({"weight": weight, "bias": weight} if bias else {"weight": weight}) if learned else {}
    else:
        return {}
    return {"weight": weight, "bias": (out,)} if bias else {"weight": weight}


def _drawn(kind: str, shapes: Mapping[str, tuple[int, ...]], key: Key | None) -> dict[str, Array]:
    """Arrays of a layer at the start: uniform as in PyTorch, ones and zeros for a normalisation."""
    dtype = jnp.result_type(float)
    if key is None:
        return {name: jnp.full(shape, jnp.nan, dtype) for name, shape in shapes.items()}
    if "Norm" in kind:
        return {name: jnp.full(shape, float(name == "weight"), dtype) for name, shape in shapes.items()}
    bound = 1 / math.sqrt(math.prod(shapes["weight"][1:]))
    keys = jax.random.split(key, len(shapes))
    return {n: jax.random.uniform(k, s, dtype, -bound, bound) for k, (n, s) in zip(keys, shapes.items())}


# ---- functions

_ELEMENTWISE: dict[str, Callable] = {
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "hardtanh": lambda x, min_val=-1.0, max_val=1.0: jnp.clip(x, min_val, max_val),
    "hardswish": jax.nn.hard_swish,
    "selu": jax.nn.selu,
    "silu": jax.nn.silu,
    "leakyrelu": lambda x, negative_slope=0.01: jax.nn.leaky_relu(x, negative_slope),
    "gelu": lambda x, approximate="none": jax.nn.gelu(x, approximate=approximate == "tanh"),
    "logsigmoid": jax.nn.log_sigmoid,
    "tanhshrink": lambda x: x - jnp.tanh(x),
    "softsign": jax.nn.soft_sign,
    "softplus": lambda x, beta=1.0, threshold=20.0: jnp.where(
        beta * x > threshold, x, jax.nn.softplus(jnp.minimum(beta * x, threshold)) / beta
    ),
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "hardsigmoid": jax.nn.hard_sigmoid,
    "mish": jax.nn.mish,
    "elu": lambda x, alpha=1.0: jax.nn.elu(x, alpha),
    "celu": lambda x, alpha=1.0: jax.nn.celu(x, alpha),
    "softmax": lambda x, dim=-1: jax.nn.softmax(x, dim),
    "logsoftmax": lambda x, dim=-1: jax.nn.log_softmax(x, dim),
    "flatten": lambda x, start_dim=0, end_dim=-1: _flat(x, start_dim, end_dim),
    "identity": lambda x: x,
    "exp": jnp.exp,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "abs": jnp.abs,
    "neg": jnp.negative,
}
_OTHERS: dict[str, Callable] = {
    "cat": lambda xs, dim=0: jnp.concatenate(xs, dim),
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "truediv": jnp.divide,
    "div": jnp.divide,
}
_IGNORED = ("inplace", "_stacklevel", "dtype")
"""Options that do not change results."""


def _function(name: str) -> Callable:
    known = _ELEMENTWISE | _OTHERS
    plain = str(name).lower().replace("_", "")
    if plain not in known:
        raise ValueError(f"the function `{name}` of a network is not supported; supported are {', '.join(known)}.")
    return lambda *args, **options: known[plain](*args, **{k: v for k, v in options.items() if k not in _IGNORED})


def _flat(x: Array, start: int, end: int) -> Array:
    first, last = start % x.ndim, end % x.ndim
    return x.reshape(*x.shape[:first], -1, *x.shape[last + 1 :])


# ---- layers; `w` are a layer's arrays, `o` its options


def _layer(layer: Mapping[str, Any]) -> Callable:
    kind, options = str(layer["layer_type"]), layer.get("args") or {}
    if options.get("ceil_mode") or options.get("return_indices"):
        raise ValueError(f"the layer `{layer['layer_id']}` has `ceil_mode` or `return_indices`: not supported.")
    if kind == "AlphaDropout":
        return _alpha_dropout
    if "Dropout" in kind:
        return lambda w, o, x: x
    base = kind[:-2] if kind[-2:] in ("1d", "2d", "3d") else kind
    if base in _LAYERS and (base != kind) == (base in _SPATIAL):
        return functools.partial(_over_samples, int(kind[-2]), _LAYERS[base]) if base in _WINDOWS else _LAYERS[base]
    plain = kind.lower()
    if plain in _ELEMENTWISE:
        start = {"start_dim": 1} if plain == "flatten" else {}  # the layer's default is not the function's
        return lambda w, o, x: _function(plain)(x, **(start | dict(o)))
    known = [f"{name}1d to {name}3d" if name in _SPATIAL else name for name in _LAYERS]
    raise ValueError(
        f"the layer `{layer['layer_id']}` has the type `{kind}`, which is not supported; supported are "
        f"{', '.join(known)}, Dropout, Flatten and activation functions."
    )


def _each(value: Any, count: int) -> tuple:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,) * count


def _over_samples(count: int, function: Callable, w: _Weights, o: _Options, x: Array) -> Array:
    """Applies a layer of `count` dimensions of space to samples, or to one."""
    if x.ndim not in (count + 1, count + 2):
        raise ValueError(f"a layer with {count} dimensions of space has an input of shape {x.shape}.")
    return function(count, w, o, x) if x.ndim == count + 2 else function(count, w, o, x[None])[0]


def _linear(w: _Weights, o: _Options, x: Array) -> Array:
    return _biased(jnp.matmul(x, w["weight"].T, precision="highest"), w)


def _bilinear(w: _Weights, o: _Options, x: Array, y: Array) -> Array:
    return _biased(jnp.einsum("...i,kij,...j->...k", x, w["weight"], y, precision="highest"), w)


def _last(w: Array, x: Array) -> Array:
    """An array of the last dimensions, with as many dimensions as another one."""
    return jnp.expand_dims(w, range(x.ndim - w.ndim))


def _biased(x: Array, w: _Weights) -> Array:
    return x + _last(w["bias"], x) if "bias" in w else x


def _per_channel(w: Array, count: int) -> Array:
    return w.reshape(1, -1, *(1,) * count)


def _convolved(count: int, w: _Weights, o: _Options, x: Array) -> Array:
    stride, dilation = _each(o.get("stride", 1), count), _each(o.get("dilation", 1), count)
    window, padding = w["weight"].shape[2:], o.get("padding", 0)
    if isinstance(padding, str):
        total = [d * (k - 1) * (padding == "same") for d, k in zip(dilation, window)]
        pads = [(n // 2, n - n // 2) for n in total]
    else:
        pads = [(p, p) for p in _each(padding, count)]
    mode = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[
        o.get("padding_mode", "zeros")
    ]
    x = jnp.pad(x, [(0, 0), (0, 0), *pads], mode=mode)
    found = jax.lax.conv_general_dilated(
        x, w["weight"], stride, "VALID", rhs_dilation=dilation, feature_group_count=o.get("groups", 1),
        precision="highest",
    )  # fmt: skip
    return found + _per_channel(w["bias"], count) if "bias" in w else found


def _transposed(count: int, w: _Weights, o: _Options, x: Array) -> Array:
    stride, dilation = _each(o.get("stride", 1), count), _each(o.get("dilation", 1), count)
    padding, more = _each(o.get("padding", 0), count), _each(o.get("output_padding", 0), count)
    groups, weight = o.get("groups", 1), w["weight"]
    window = weight.shape[2:]
    # (in, out / groups, ...) with each group's channels, to (out, in / groups, ...), and the window mirrored
    weight = weight.reshape(groups, -1, *weight.shape[1:]).swapaxes(1, 2)
    weight = jnp.flip(weight.reshape(-1, *weight.shape[2:]), range(2, 2 + count))
    pads = [(d * (k - 1) - p, d * (k - 1) - p + m) for d, k, p, m in zip(dilation, window, padding, more)]
    found = jax.lax.conv_general_dilated(
        x, weight, (1,) * count, pads, lhs_dilation=stride, rhs_dilation=dilation, feature_group_count=groups,
        precision="highest",
    )  # fmt: skip
    return found + _per_channel(w["bias"], count) if "bias" in w else found


def _reduced(x: Array, first: float, function: Callable, count: int, o: _Options) -> Array:
    """Windows of an array reduced, with PyTorch's options of poolings."""
    window = _each(o["kernel_size"], count)
    stride = window if o.get("stride") is None else _each(o["stride"], count)
    dilation = _each(o.get("dilation", 1), count)
    pads = [(p, p) for p in _each(o.get("padding", 0), count)]
    return jax.lax.reduce_window(
        x, jnp.asarray(first, x.dtype), function, (1, 1, *window), (1, 1, *stride), [(0, 0), (0, 0), *pads],
        window_dilation=(1, 1, *dilation),
    )  # fmt: skip


def _max_pool(count: int, w: _Weights, o: _Options, x: Array) -> Array:
    return _reduced(x, -jnp.inf, jax.lax.max, count, o)


def _avg_pool(count: int, w: _Weights, o: _Options, x: Array) -> Array:
    size = o.get("divisor_override") or math.prod(_each(o["kernel_size"], count))
    if not (o.get("count_include_pad", True) or o.get("divisor_override")):
        size = _reduced(jnp.ones_like(x), 0.0, jax.lax.add, count, o)
    return _reduced(x, 0.0, jax.lax.add, count, o) / size


def _lp_pool(count: int, w: _Weights, o: _Options, x: Array) -> Array:
    power = float(o["norm_type"])
    total = _reduced(x**power, 0.0, jax.lax.add, count, o)
    return jnp.where(total > 0, jnp.where(total > 0, total, 1.0) ** (1 / power), 0.0)


def _adaptive(reduce: Callable, count: int, w: _Weights, o: _Options, x: Array) -> Array:
    for axis, size in enumerate(_each(o["output_size"], count), 2):
        n = x.shape[axis]
        size = n if size is None else size
        ends = [(i * n // size, -(-(i + 1) * n // size)) for i in range(size)]
        x = jnp.stack([reduce(jax.lax.slice_in_dim(x, a, b, axis=axis), axis=axis) for a, b in ends], axis)
    return x


def _normalised(x: Array, axes: tuple[int, ...], o: _Options) -> Array:
    centred = x - jnp.mean(x, axes, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred**2, axes, keepdims=True) + o.get("eps", 1e-5))


def _scaled(x: Array, w: _Weights, count: int) -> Array:
    if "weight" in w:
        x = x * _per_channel(w["weight"], count)
    return x + _per_channel(w["bias"], count) if "bias" in w else x


def _batch_norm(w: _Weights, o: _Options, x: Array) -> Array:
    return _scaled(_normalised(x, (0, *range(2, x.ndim)), o), w, x.ndim - 2)


def _instance_norm(count: int, w: _Weights, o: _Options, x: Array) -> Array:
    return _scaled(_normalised(x, tuple(range(2, x.ndim)), o), w, count)


def _layer_norm(w: _Weights, o: _Options, x: Array) -> Array:
    shape = o["normalized_shape"]
    count = len(shape) if isinstance(shape, (list, tuple)) else 1
    x = _normalised(x, tuple(range(x.ndim - count, x.ndim)), o)
    return _biased(x * _last(w["weight"], x) if "weight" in w else x, w)


def _alpha_dropout(w: _Weights, o: _Options, x: Array) -> Array:
    """The mean over what is dropped, which is scaled for a variance that stays (G. Klambauer and others, 2017)."""
    p, least = o.get("p", 0.5), 1.7580993408473766
    return x * (1 - p) / math.sqrt((1 - p) * (1 + p * least**2))


_WINDOWS: dict[str, Callable] = {
    "Conv": _convolved,
    "ConvTranspose": _transposed,
    "MaxPool": _max_pool,
    "AvgPool": _avg_pool,
    "LPPool": _lp_pool,
    "AdaptiveMaxPool": functools.partial(_adaptive, jnp.max),
    "AdaptiveAvgPool": functools.partial(_adaptive, jnp.mean),
    "InstanceNorm": _instance_norm,
}
_SPATIAL = (*_WINDOWS, "BatchNorm")
_LAYERS: dict[str, Callable] = {
    "Linear": _linear, "Bilinear": _bilinear, "LayerNorm": _layer_norm, "BatchNorm": _batch_norm, **_WINDOWS,
}  # fmt: skip
