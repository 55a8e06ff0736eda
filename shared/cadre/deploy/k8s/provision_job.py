"""The Job that creates streams and consumers when a team is deployed, before KEDA asks for their lag."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from cadre.deploy.k8s.components import Component
from cadre.deploy.k8s.labels import labels
from cadre.deploy.k8s.manifest import Manifest, manifest
from cadre.deploy.k8s.overlay import merged
from cadre.deploy.k8s.pod_spec import plain_pod_spec
from cadre.deploy.k8s.values import Values


def provision_job(components: Sequence[Component], values: Values) -> Manifest:
    """The Job for these components. A Job cannot be changed, so its name is derived from its arguments and image."""
    options = [option for component in components for option in component.provides]
    bus = values.nats
    whole = "\0".join([values.image, bus.url, str(bus.shards), bus.credentials, *options])
    name = f"cadre-provision-{sha256(whole.encode()).hexdigest()[:8]}"
    component = Component("provision", "", ["provision", *options])
    workload = values.workload(component.key)
    marks = labels("cadre-provision", component.role)
    pod = {"restartPolicy": "OnFailure", **plain_pod_spec(component, values, workload)}
    del pod["topologySpreadConstraints"]
    return manifest(
        "batch/v1",
        "Job",
        {"name": name, "namespace": values.namespace, "labels": marks},
        spec={
            "backoffLimit": 10,
            "ttlSecondsAfterFinished": 3600,
            "template": {"metadata": {"labels": marks}, "spec": merged(pod, workload.pod)},
        },
    )
