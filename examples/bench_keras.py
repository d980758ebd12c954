"""What the SIGUA callback adds to a step of `model.fit`, on the backend that KERAS_BACKEND names.

    KERAS_BACKEND=jax python examples/bench_keras.py [--net cnn]

Fits of one model alternate, with and without the callback (two models differ by some percent for
reasons of memory alone), and the first epoch of each, which compiles, is left out. Prints a JSON
list of rows: bench.py, which runs this once per backend, makes a table of them. Needs keras with
one of its backends, and sigua.
"""

import argparse
import json
import time

import keras
import numpy as np

import sigua
from sigua_keras import SIGUA

BATCH = 128
PAIR = sigua.TransitionMatrix.pair(0.45, 10)
CALLBACKS = {
    "plain": list,
    "SIGUA_SL": lambda: [SIGUA(sigua.sigua_sl(0.5, delta=0.15, warmup=0))],
    "self-teaching": lambda: [SIGUA(sigua.self_teaching(0.5, warmup=0))],
    "SIGUA_AG": lambda: [SIGUA(sigua.sigua_ag(warmup=0))],
    "SIGUA_BC dense": lambda: [SIGUA(sigua.sigua_bc(PAIR))],
}


class Clock(keras.callbacks.Callback):
    """Takes the processor's time of each epoch; it comes last, to have other callbacks in."""

    def on_train_begin(self, logs=None):
        self.ends = [time.process_time()]

    def on_epoch_end(self, epoch, logs=None):
        self.ends.append(time.process_time())


def make_model(net: str) -> keras.Model:
    """Return the MLP 784-256-256-10, or a CNN of four layers on 32 x 32 x 3, compiled for Adam."""
    keras.utils.set_random_seed(0)
    shape = (784,)
    hidden = [keras.layers.Dense(256, activation="relu") for _ in range(2)]
    if net == "cnn":
        shape = (32, 32, 3)
        hidden = [
            *(keras.layers.Conv2D(width, 3, 2, activation="relu") for width in (32, 64, 128)),
            keras.layers.Flatten(),
        ]
    model = keras.Sequential([keras.Input(shape), *hidden, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-4), loss)
    return model


def step_times(net: str, rounds: int, epochs: int) -> dict[str, np.ndarray]:
    """Return the processor's seconds per step, a median per round, for each set of callbacks."""
    model, rng, steps = make_model(net), np.random.default_rng(0), 100 if net == "mlp" else 20
    x = rng.random((BATCH * steps, *model.input_shape[1:]), dtype=np.float32)
    y = rng.integers(0, 10, BATCH * steps)
    times = {name: [] for name in CALLBACKS}
    for _ in range(rounds):
        for name in rng.permutation(list(CALLBACKS)):
            clock = Clock()
            callbacks = [*CALLBACKS[name](), clock]
            model.fit(x, y, BATCH, epochs=1 + epochs, verbose=0, callbacks=callbacks)
            times[name].append(np.median(np.diff(clock.ends)[1:]) / steps)
    return {name: np.array(values) for name, values in times.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--net", choices=["mlp", "cnn"], default="mlp", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=9, help="fits of each kind")
    parser.add_argument("--epochs", type=int, default=4, help="timed epochs in a fit")
    args = parser.parse_args()
    times = step_times(args.net, args.rounds, args.epochs)
    print(json.dumps({name: values.tolist() for name, values in times.items()}))
