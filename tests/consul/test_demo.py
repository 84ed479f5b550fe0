"""`manage.py demo --using consul`."""

from __future__ import annotations

from pathlib import Path

from tests.servers import Consul
from tests.shop import demo_holds


def test_the_demo_on_consul(server: Consul, tmp_path: Path) -> None:
    """Sell each article once, and go on when a holder is killed."""
    demo_holds("consul", tmp_path, SHOP_CONSUL=server.url)
