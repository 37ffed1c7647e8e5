"""A cluster of Ray with two nodes, on loopback. One for all tests of a process, since it takes ten seconds to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# Otherwise Ray takes 127.0.0.1 for a mistake, and uses the address of a network. It looks when it is imported.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The ray.cluster_utils.Cluster, with a head and one other node of one core each. This process is connected to it."""
    import ray
    from ray.cluster_utils import Cluster

    # Workers import the functions that tests run on them.
    paths = [os.path.dirname(__file__), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    # The cache of indexes, as in `own_cache`.
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.getbasetemp() / "cache")
    own = {"num_cpus": 1, "node_ip_address": "127.0.0.1"}
    cluster = Cluster(initialize_head=True, head_node_args={**own, "include_dashboard": False})
    cluster.add_node(**own)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def in_order(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The context of Ray Data, which keeps the order of records."""
    import ray.data

    context = ray.data.DataContext.get_current()
    monkeypatch.setattr(context.execution_options, "preserve_order", True)
    monkeypatch.setattr(context, "enable_progress_bars", False)
    return context
