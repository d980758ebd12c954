"""`sync=` makes one mini-batch of those of all processes."""

import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("ddp_worker.py")


@pytest.mark.parametrize("processes", [2, 3])
def test_gradients_equal_those_of_one_process(processes):
    """Two processes, with even and uneven parts; three, of which one is empty; nobody hangs."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    result = subprocess.run([sys.executable, *launch, str(WORKER)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stderr.count("passed") == processes
