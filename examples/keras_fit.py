"""SIGUA in `model.fit`, on real handwritten digits of which half the labels are wrong.

    KERAS_BACKEND=jax python examples/keras_fit.py

trains the same small network twice on scikit-learn's 1,797 digits, plainly and with the callback,
in well under a minute on a CPU. Needs keras with one of its backends, scikit-learn and sigua.
"""

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import sigua
from sigua_keras import SIGUA

EPOCHS = 80
METHOD = sigua.sigua_sl(noise_rate=0.5, delta=0.15, gamma=0.01)


def network() -> keras.Model:
    keras.utils.set_random_seed(0)
    layers = [
        keras.Input((64,)),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
    model = keras.Sequential(layers)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


x, y = load_digits(return_X_y=True)
x, x_test, y, y_test = train_test_split(x / 16, y, test_size=0.25, random_state=0, stratify=y)
y_noisy = sigua.corrupt_labels(y, sigua.TransitionMatrix.symmetric(0.5, 10), seed=0)

print(f"Keras {keras.__version__} on {keras.config.backend()}, half of the training labels wrong")
for name, callbacks in [("plain", []), ("SIGUA", [SIGUA(METHOD)])]:
    model = network()
    model.fit(x, y_noisy, batch_size=128, epochs=EPOCHS, verbose=0, callbacks=callbacks)
    _, accuracy = model.evaluate(x_test, y_test, verbose=0)
    print(f"{name}: {accuracy:.1%} of the test digits right")
