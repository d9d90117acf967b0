"""The CRDs that a proxy with a host cluster needs: the files in ``deploy/crds``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from tower.kube.rest.host_api import Object
from tower.kube.rest.well_known import CLUSTERS

#: Annotation with a number that increases with each change of the CRDs; those of others do not have it.
REVISION = "tower.kubesphere.io/crd-revision"

#: The commands that install the CRDs, for messages.
INSTALL = (
    "'tower crds | kubectl apply -f -' (with KubeSphere, 'tower crds --without-clusters | …') or "
    "'tower-proxy --install-crds'"
)


def crd_text(*, with_clusters: bool = True) -> str:
    """Return the files as one YAML text.

    :param with_clusters: include the CRD of Cluster objects.
    """
    texts = _texts()
    if not with_clusters:
        texts = {name: text for name, text in texts.items() if name != CLUSTERS.name}
    return "---\n".join(texts.values()).rstrip("\n")


def crds() -> list[Object]:
    """Return the objects, sorted by name."""
    return [yaml.safe_load(text) for text in _texts().values()]


def revision_of(crd: Object) -> int | None:
    """Return the revision of a CRD; None: it is not Tower's, or from before there were revisions."""
    annotations: dict[str, Any] = crd["metadata"].get("annotations") or {}
    try:
        return int(annotations[REVISION])
    except (KeyError, ValueError):
        return None


@cache
def _texts() -> dict[str, str]:
    """Return the text of each file, by the name of its CRD."""
    found = [path.read_text() for path in (files("tower") / "deploy" / "crds").iterdir()]
    return dict(sorted((str(yaml.safe_load(text)["metadata"]["name"]), text) for text in found))
