"""`manage.py demo --using etcd`."""

from __future__ import annotations

from pathlib import Path

from tests.servers import Etcd
from tests.shop import demo_holds


def test_the_demo_on_etcd(server: Etcd, tmp_path: Path) -> None:
    """Sell each article once, and go on when a holder is killed."""
    demo_holds("etcd", tmp_path, SHOP_ETCD=server.url)
