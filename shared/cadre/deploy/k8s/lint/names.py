"""Names, labels, and objects that are there twice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from cadre.deploy.k8s.lint.objects import Objects, key_of, kind_of, mapping, name_of, namespace_of

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?")
_LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")

_LABEL_NAMED = ("Deployment", "StatefulSet", "DaemonSet", "Job", "Service", "Namespace")
"""Kinds whose names become labels or host names: without dots, 63 characters at most."""


def problems(objects: Objects) -> Iterator[str]:
    """Yields the problems, each as `Kind/name: what`."""
    times = Counter((kind_of(m), namespace_of(m), name_of(m)) for m in objects.all)
    for (kind, _, name), count in times.items():
        if count > 1:
            yield f"{kind}/{name}: is there {count} times"
    for found in objects.all:
        where, name = key_of(found), name_of(found)
        wanted = _LABEL if kind_of(found) in _LABEL_NAMED else _SUBDOMAIN
        if not wanted.fullmatch(name) or len(name) > 253:
            yield f"{where}: a name has small letters, digits and '-' only, and begins with a letter or digit"
        template = mapping(found, "spec", "template", "metadata", "labels")
        for key, value in (*mapping(found, "metadata", "labels").items(), *template.items()):
            if not _LABEL_KEY.fullmatch(str(key)):
                yield f"{where}: {key!r} is no label's name"
            if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
                yield f"{where}: label {key}: {value!r} is no label's value"
        if kind_of(found) in ("ConfigMap", "Secret"):
            for key in (*mapping(found, "data"), *mapping(found, "binaryData")):
                if not _DATA_KEY.fullmatch(str(key)):
                    yield f"{where}: {key!r} is no key for data"
