"""KerasTuner chooses SIGUA's gamma and delta, on digits of which half the labels are wrong.

    KERAS_BACKEND=jax python examples/trainers/keras_search.py

`HyperModel.build` is an everyday one; its `fit` adds the callback. Held-out labels choose, wrong
ones and all, which rank models as clean ones do where errors do not follow from the input
(`sigua.diagnose`); if you have 100 checked labels, choose by those. Needs keras with one of its
backends, keras-tuner, six (which keras-tuner forgets to ask for), scikit-learn and sigua.
"""

import tempfile

import keras
import keras_tuner
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import sigua
from sigua_keras import SIGUA

EPOCHS = 30


def method(hp: keras_tuner.HyperParameters) -> sigua.Method:
    gamma = hp.Float("gamma", 1e-3, 1.0, sampling="log")
    return sigua.sigua_sl(noise_rate=0.5, delta=hp.Float("delta", 0.05, 0.5), gamma=gamma)


class Digits(keras_tuner.HyperModel):
    def build(self, hp: keras_tuner.HyperParameters) -> keras.Model:
        keras.utils.set_random_seed(0)
        layers = [
            keras.Input((64,)),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
        model = keras.Sequential(layers)
        adam = keras.optimizers.Adam(3e-3)  # quick to memorise what is wrong
        model.compile(adam, "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model

    def fit(self, hp, model, *args, callbacks=(), **kwargs):
        history = model.fit(*args, callbacks=[*callbacks, SIGUA(method(hp))], **kwargs).history
        return {"val_accuracy": np.mean(history["val_accuracy"][-10:])}  # not the luckiest epoch's


def search(folder: str, train: tuple, validation: tuple, **options) -> keras_tuner.Tuner:
    """Return a tuner that has searched."""
    fixed = {"objective": "val_accuracy", "max_trials": 3, "seed": 0}
    tuner = keras_tuner.RandomSearch(Digits(), directory=folder, **fixed | options)
    tuner.search(*train, validation_data=validation, epochs=EPOCHS, batch_size=128, verbose=0)
    return tuner


def load() -> list[tuple]:
    """Return a part to train on, one to choose by, both half wrong, and a clean one to report."""
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x / 16, y, test_size=0.25, random_state=0, stratify=y)
    y = sigua.corrupt_labels(y, sigua.TransitionMatrix.symmetric(0.5, 10), seed=0)
    x, x_val, y, y_val = train_test_split(x, y, test_size=0.25, random_state=0, stratify=y)
    return [(x, y), (x_val, y_val), (x_test, y_test)]


def accuracy(hp: keras_tuner.HyperParameters, callbacks: list, train: tuple, test: tuple) -> float:
    """Return the accuracy on clean test data after training."""
    model = Digits().build(hp)
    model.fit(*train, epochs=EPOCHS, batch_size=128, verbose=0, callbacks=callbacks)
    return model.evaluate(*test, verbose=0)[1]


def main() -> None:
    train, validation, test = load()
    versions = f"KerasTuner {keras_tuner.__version__}, Keras {keras.__version__}"
    print(f"{versions} on {keras.config.backend()}, half of the training labels wrong")
    with tempfile.TemporaryDirectory() as folder:
        (best,) = search(folder, train, validation).get_best_hyperparameters()
    print(f"chosen: {method(best)}")
    for name, callbacks in {"plain": [], "SIGUA": [SIGUA(method(best))]}.items():
        print(f"{name}: {accuracy(best, callbacks, train, test):.1%} of the test digits right")


if __name__ == "__main__":
    main()
