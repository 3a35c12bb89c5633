from __future__ import annotations

import json

from benchmarks import lambdas


def test_each_collection_is_asked_with_every_lambda(tmp_path, monkeypatch):
    monkeypatch.setattr(lambdas, "QUICK_PICTURES", 8)
    monkeypatch.setattr("sys.argv", ["lambdas", "--quick", "--json", str(tmp_path / "found.json")])
    lambdas.main()
    found = {m["name"]: m for m in json.loads((tmp_path / "found.json").read_text())["metrics"]}
    names = ("dev", "train", "drawn")
    assert all(found[f"lambda_{name}"]["value"] > 0 for name in names)
    assert all(
        0 < found[f"mrr_{name}_with_lambda_of_{other}"]["value"] <= 1 for name in names for other in names
    )
