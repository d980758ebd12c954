"""Every block of Python in README and guide runs; those for Keras here."""

import keras
import numpy as np


def names():
    """Return what the blocks take for granted: a compiled model, data, and tokens with tags."""
    rng = np.random.default_rng(0)
    x, y = rng.random((64, 5)).astype("float32"), np.arange(64) % 3
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    tokens = rng.integers(0, 100, (64, 6))
    given = {"model": model, "keras_model": model, "x": x, "y": y, "x_val": x, "y_val": y}
    return given | {"tokens": tokens, "tags": tokens % 5}


def test_the_blocks_run(documented, tmp_path, monkeypatch):
    """One after the other, each with fresh names."""
    monkeypatch.chdir(tmp_path)  # where some save a model
    blocks = documented("keras")
    assert len(blocks) > 3
    for place, block in blocks.items():
        exec(compile(block.replace("epochs=30", "epochs=2"), place, "exec"), names())
