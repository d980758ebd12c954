"""Every block of Python in README and guide runs; those for JAX here."""

import jax


def test_the_blocks_run(documented):
    """One after the other, each with fresh names."""
    blocks = documented("jax")
    assert blocks
    for place, block in blocks.items():
        logits = jax.random.normal(jax.random.key(0), (64, 10))
        names = {"logits": logits, "labels": jax.numpy.arange(64) % 10, "epoch": 3}
        names |= {"inputs": logits, "network": lambda params, x: x * params, "params": 1.0}
        exec(compile(block, place, "exec"), names)
