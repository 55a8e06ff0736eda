"""Scales replicas by lag: KEDA asks NATS how many messages a service's durable consumers have, and the gateway how many
are for one of two revisions of an agent."""

from typing import Any
from urllib.parse import urlencode

from cadre.deploy.k8s.components import Component, object_name
from cadre.deploy.k8s.manifest import Manifest, manifest, metadata
from cadre.deploy.k8s.values import Scale, Values
from cadre.protocol.topology import Topology

_ONE_A_MINUTE = {
    # One pod at a time, and not at the first quiet moment: what is taken away has to drain.
    "stabilizationWindowSeconds": 300,
    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
}


def scaled_object(component: Component, values: Values, scale: Scale) -> Manifest:
    """The ScaledObject of a component, with one trigger per consumer and shard, or one for a revision of an agent.

    A consumer's lag counts messages that wait or are at work, so a busy service is not scaled down. A revision keeps
    one replica: without any it would get no new runs.
    """
    least = max(1, scale.min) if component.is_shared else scale.min
    return manifest(
        "keda.sh/v1alpha1",
        "ScaledObject",
        metadata(values.namespace, component.id, component.role),
        spec={
            "scaleTargetRef": {"name": component.id},
            "pollingInterval": 10,
            "cooldownPeriod": 300,
            "minReplicaCount": least,
            "maxReplicaCount": scale.max,
            # When NATS or the gateway does not answer, as when a consumer is not there.
            "fallback": {
                "failureThreshold": 3,
                "replicas": max(1, least),
                "behavior": "currentReplicasIfHigher",
            },
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": _ONE_A_MINUTE}}},
            "triggers": _of_revision(component, values, scale)
            if component.is_shared
            else _of_queues(component, values, scale),
        },
    )


def _of_queues(component: Component, values: Values, scale: Scale) -> list[dict[str, Any]]:
    """The largest trigger decides; therefore each is given its shard's share of `lag`."""
    topology = Topology(values.nats.shards, values.nats.prefix)
    share = max(1, -(-scale.lag // topology.shards))
    return [
        {
            "type": "nats-jetstream",
            "metadata": {  # KEDA takes strings only
                "natsServerMonitoringEndpoint": values.monitor,
                "account": values.nats.account,
                "stream": topology.stream(shard),
                "consumer": consumer,
                "lagThreshold": str(share),
                "activationLagThreshold": "0",
            },
        }
        for consumer in component.consumers
        for shard in range(topology.shards)
    ]


def _of_revision(component: Component, values: Values, scale: Scale) -> list[dict[str, Any]]:
    """The gateway tells what is this revision's: the names of revisions' queues are not known beforehand."""
    host = f"{object_name(values.instance, 'gateway')}.{values.namespace}.svc.cluster.local"
    query = f"?{urlencode({'beside': component.beside})}" if component.beside else ""
    about = {
        "url": f"http://{host}/v1/agents/{component.name}/lag{query}",
        "valueLocation": "lag",
        "targetValue": str(scale.lag),
        "activationTargetValue": "0",
    }
    return [{"type": "metrics-api", "metadata": about}]
