"""SIGUA with Flax NNX and Optax over all devices, on digits of which half the labels are wrong.

    python examples/trainers/flax_fit.py
    XLA_FLAGS=--xla_force_host_platform_device_count=4 python examples/trainers/flax_fit.py

An everyday step of NNX, whose loss was swapped. Mini-batches are spread over the devices and are
one mini-batch to the method. The epoch is told in the optimiser's own steps, so that it is saved
and resumed with it; the class confidence of `sigua_ag` goes in and out of the step. Gradients of
two mini-batches are accumulated, and a mini-batch whose gradient is not finite is left out. Needs
jax, flax, optax, scikit-learn and sigua.
"""

import functools

import jax
import numpy as np
import optax
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import sigua
from sigua_jax import init_confidence, sigua_loss, update_confidence

EPOCHS, BATCH = 60, 64


def network() -> nnx.Sequential:
    rngs = nnx.Rngs(0)
    sizes = [(64, 128), (128, 128), (128, 10)]
    layers = [nnx.Linear(fan_in, fan_out, rngs=rngs) for fan_in, fan_out in sizes]
    return nnx.Sequential(layers[0], nnx.relu, layers[1], nnx.relu, layers[2])


def optimizer_of(model: nnx.Module, accumulate: int = 2) -> nnx.Optimizer:
    """Return Adam; the order matters, for what is accumulated once stays."""
    summed = optax.MultiSteps(optax.adam(3e-3), every_k_schedule=accumulate)
    finite = optax.apply_if_finite(summed.gradient_transformation(), max_consecutive_errors=5)
    return nnx.Optimizer(model, finite, wrt=nnx.Param)


@functools.partial(nnx.jit, static_argnames=("method", "steps_per_epoch"))
def step(model, optimizer, confidence, x, y, method, steps_per_epoch):
    """Take one step and return the class confidence; compiled once for all epochs."""

    def objective(model):
        logits = model(x)
        now = {"steps_per_epoch": steps_per_epoch, "confidence": confidence}
        return sigua_loss(logits, y, optimizer.step[...], method, **now), logits

    gradient, logits = nnx.grad(objective, has_aux=True)(model)
    optimizer.update(model, gradient)
    return update_confidence(confidence, logits, y)


def fit(method: sigua.Method, x: np.ndarray, y: np.ndarray) -> nnx.Module:
    """Return the trained network."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    model = network()
    optimizer, confidence = optimizer_of(model), init_confidence(10)
    draw, steps = np.random.default_rng(0), len(x) // BATCH
    for _ in range(EPOCHS):
        order = draw.permutation(len(x))[: steps * BATCH].reshape(steps, BATCH)
        for batch in order:
            given = jax.device_put((x[batch], y[batch]), rows)
            confidence = step(model, optimizer, confidence, *given, method, steps)
    return model


def main() -> None:
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32")
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.25, random_state=0, stratify=y)
    noisy = sigua.corrupt_labels(y, sigua.TransitionMatrix.symmetric(0.5, 10), seed=0)
    print(f"JAX {jax.__version__} on {jax.device_count()} devices, half of the labels wrong")
    for name, method in {"plain": sigua.standard(), "SIGUA": sigua.sigua_ag()}.items():
        right = fit(method, x, noisy)(x_test).argmax(axis=1) == y_test
        print(f"{name}: {right.mean():.1%} of the test digits right")


if __name__ == "__main__":
    main()
