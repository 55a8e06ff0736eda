"""Scales replicas by lag: KEDA asks NATS how many messages a service's durable consumers have."""

from cadre.deploy.k8s.components import Component
from cadre.deploy.k8s.manifest import Manifest, manifest, metadata
from cadre.deploy.k8s.values import Scale, Values
from cadre.protocol.topology import Topology

_ONE_A_MINUTE = {
    # One pod at a time, and not at the first quiet moment: what is taken away has to drain.
    "stabilizationWindowSeconds": 300,
    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
}


def scaled_object(component: Component, values: Values, scale: Scale) -> Manifest:
    """The ScaledObject of a component, with one trigger per consumer and shard.

    A consumer's lag counts messages that wait or are at work, so a busy service is not scaled down. The largest
    trigger decides; therefore each is given its shard's share of `lag`.
    """
    topology = Topology(values.nats.shards, values.nats.prefix)
    share = max(1, -(-scale.lag // topology.shards))
    triggers = [
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
    return manifest(
        "keda.sh/v1alpha1",
        "ScaledObject",
        metadata(values.namespace, component.id, component.role),
        spec={
            "scaleTargetRef": {"name": component.id},
            "pollingInterval": 10,
            "cooldownPeriod": 300,
            "minReplicaCount": scale.min,
            "maxReplicaCount": scale.max,
            # When NATS does not answer, as when a consumer is not there.
            "fallback": {
                "failureThreshold": 3,
                "replicas": max(1, scale.min),
                "behavior": "currentReplicasIfHigher",
            },
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": _ONE_A_MINUTE}}},
            "triggers": triggers,
        },
    )
