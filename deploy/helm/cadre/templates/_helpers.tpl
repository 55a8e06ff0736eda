{{/* The name of an image, in the registry that all images come from where one is named: (list . IMAGE). */}}
{{- define "cadre.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with $root.Values.global.registry -}}
{{- $host := first (splitList "/" $image) -}}
{{- if and (contains "/" $image) (or (contains "." $host) (contains ":" $host) (eq $host "localhost")) -}}
{{- $image = trimPrefix (printf "%s/" $host) $image -}}
{{- end -}}
{{- printf "%s/%s" (trimSuffix "/" .) $image -}}
{{- else -}}
{{- $image -}}
{{- end -}}
{{- end -}}

{{/* The operator's values: those below `cadre`, with what the rest of the chart decides. */}}
{{- define "cadre.values" -}}
{{- $values := omit .Values.cadre "namespace" | deepCopy -}}
{{- $_ := set $values "image" (include "cadre.image" (list . .Values.cadre.image)) -}}
{{- if and .Values.nats.enabled (gt (int .Values.nats.replicas) 1) -}}
{{- $copies := dict "replicas" (min 5 (int .Values.nats.replicas)) -}}
{{- $_ := set $values "nats" (merge ($values.nats | default dict) $copies) -}}
{{- end -}}
{{- with .Values.gateway.existingSecret -}}
{{- $_ := set $values "gateway" (merge (dict "secret" .) ($values.gateway | default dict)) -}}
{{- end -}}
{{- with .Values.gateway.path -}}
{{- $_ := set $values "gateway" (merge (dict "path" .) ($values.gateway | default dict)) -}}
{{- end -}}
{{- with .Values.global.imagePullSecrets -}}
{{- $all := get ($values.workloads | default dict) "*" | default dict -}}
{{- $pod := merge ($all.pod | default dict) (dict "imagePullSecrets" .) -}}
{{- $_ := set $all "pod" $pod -}}
{{- $_ := set $values "workloads" (merge (dict "*" $all) ($values.workloads | default dict)) -}}
{{- end -}}
{{- toYaml $values -}}
{{- end -}}

{{/* A value in the form of NATS' configuration, where a size or a length of time stands without quotes. */}}
{{- define "cadre.natsValue" -}}
{{- if kindIs "map" . -}}
{
{{- range $key, $value := . }}
{{ printf "%s: %s" $key (include "cadre.natsValue" $value) | indent 2 }}
{{- end }}
}
{{- else if kindIs "slice" . -}}
[{{ range $place, $one := . }}{{ if $place }}, {{ end }}{{ include "cadre.natsValue" $one }}{{ end }}]
{{- else if kindIs "string" . -}}
{{ regexMatch "^([0-9]+[a-zA-Z]*|[a-z]+|\\$[A-Z_]+)$" . | ternary . (toJson .) }}
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}

{{/* The configuration of NATS: that of the chart, `nats.config` over it. */}}
{{- define "cadre.natsConfig" -}}
{{- $many := gt (int .Values.nats.replicas) 1 -}}
{{- $config := dict "pid_file" "/var/run/nats/nats.pid" "port" 4222 "http" 8222 "max_payload" "1MB" -}}
{{- $_ := set $config "lame_duck_grace_period" "2s" -}}
{{- $_ := set $config "lame_duck_duration" "30s" -}}
{{- $_ := set $config "server_name" (ternary "$SERVER_NAME" "cadre" $many) -}}
{{- /* The limit is the volume's size: without one a server takes a share of what is free when it starts, which is nothing on a full disk. */ -}}
{{- $store := dict "store_dir" (ternary "/data/cluster" "/data" $many) "max_file_store" .Values.nats.storage.size -}}
{{- /* With three copies a machine that loses power takes nothing: the others have it in memory. One copy must be on disk. */ -}}
{{- $copies := get (.Values.cadre.nats | default dict) "replicas" | default (min 5 (int .Values.nats.replicas)) -}}
{{- $_ := set $config "jetstream" (set $store "sync_interval" (ternary "100ms" "always" (ge (int $copies) 3))) -}}
{{- if $many -}}
{{- $routes := list -}}
{{- range until (int .Values.nats.replicas) -}}
{{- $routes = append $routes (printf "nats://nats-%d.nats-headless:6222" .) -}}
{{- end -}}
{{- /* A server whose machine has lost power closes no connection: the others ask it for a sign of life this often. */ -}}
{{- $_ := set $config "cluster" (dict "name" "cadre" "port" 6222 "routes" $routes "ping_interval" "3s" "ping_max" 2) -}}
{{- end -}}
# The services' users. The operator makes the Secret that has them, or `cadre auth init --secrets`.
include "users/auth.conf"
{{- range $key, $value := mergeOverwrite $config (deepCopy .Values.nats.config) }}
{{ $key }}: {{ include "cadre.natsValue" $value }}
{{- end }}
{{ end -}}

{{/* A claim's specification: (dict "size" SIZE "className" CLASS). */}}
{{- define "cadre.claim" -}}
accessModes: [ReadWriteOnce]
{{- with .className }}
storageClassName: {{ . }}
{{- end }}
resources: {requests: {storage: {{ .size }}}}
{{- end -}}

{{/* The pod of NATS: that of the chart, `nats.pod` over it. */}}
{{- define "cadre.natsPod" -}}
{{- $many := gt (int .Values.nats.replicas) 1 -}}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: 60
# For the reloader's signal.
shareProcessNamespace: true
{{- with .Values.global.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  seccompProfile: {type: RuntimeDefault}
{{- if $many }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {app.kubernetes.io/name: nats}
{{- end }}
containers:
  - name: nats
    image: {{ include "cadre.image" (list . .Values.nats.image) }}
    args: [-c, /etc/nats/nats.conf]
    {{- if $many }}
    env: [{name: SERVER_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    # Leaderships are handed over before the server ends.
    lifecycle: {preStop: {exec: {command: [nats-server, --signal, ldm=/var/run/nats/nats.pid]}}}
    {{- end }}
    ports:
      - {name: client, containerPort: 4222}
      - {name: monitor, containerPort: 8222}
      {{- if $many }}
      - {name: cluster, containerPort: 6222}
      {{- end }}
    startupProbe:
      httpGet: {path: "/healthz?js-enabled-only=true", port: monitor}
      periodSeconds: 2
      failureThreshold: 90
    {{- if gt (int .Values.nats.replicas) 1 }}
    livenessProbe:
      httpGet: {path: "/healthz?js-enabled-only=true", port: monitor}
      periodSeconds: 30
      timeoutSeconds: 5
    {{- else }}
    # Its streams are asked as well: after a full disk they refuse writes until the server is started again.
    livenessProbe:
      httpGet: {path: /healthz, port: monitor}
      periodSeconds: 15
      timeoutSeconds: 5
      failureThreshold: 4
    {{- end }}
    readinessProbe:
      httpGet: {path: "/healthz?js-server-only=true", port: monitor}
      periodSeconds: 10
      timeoutSeconds: 5
    resources: {{ toJson .Values.nats.resources }}
    securityContext: &confined
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    volumeMounts:
      - {name: config, mountPath: /etc/nats, readOnly: true}
      - {name: data, mountPath: /data}
      - {name: pid, mountPath: /var/run/nats}
  # Has the server read its users again when the Secret changes.
  - name: reloader
    image: {{ include "cadre.image" (list . .Values.nats.reloader.image) }}
    args: [-pid, /var/run/nats/nats.pid, -config, /etc/nats/nats.conf, -config, /etc/nats/users/auth.conf]
    resources: {{ toJson .Values.nats.reloader.resources }}
    securityContext: *confined
    volumeMounts:
      - {name: config, mountPath: /etc/nats, readOnly: true}
      - {name: pid, mountPath: /var/run/nats}
volumes:
  - name: pid
    emptyDir: {medium: Memory, sizeLimit: 1Mi}
  # One volume of both: a mount inside of another that is read-only has nowhere to go.
  - name: config
    projected:
      defaultMode: 0440
      sources:
        - configMap: {name: nats}
        - secret: {name: cadre-nats-server, items: [{key: auth.conf, path: users/auth.conf}]}
{{- end -}}

{{/* The pod of Qdrant: that of the chart, `qdrant.pod` over it. */}}
{{- define "cadre.qdrantPod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: 30
{{- with .Values.global.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  seccompProfile: {type: RuntimeDefault}
containers:
  - name: qdrant
    image: {{ include "cadre.image" (list . .Values.qdrant.image) }}
    env:
      - {name: QDRANT__TELEMETRY_DISABLED, value: "true"}
      - {name: QDRANT_INIT_FILE_PATH, value: /tmp/.qdrant-initialized}
    ports:
      - {name: http, containerPort: 6333}
    startupProbe:
      httpGet: {path: /readyz, port: http}
      periodSeconds: 2
      failureThreshold: 90
    livenessProbe:
      httpGet: {path: /livez, port: http}
      periodSeconds: 10
      timeoutSeconds: 5
    readinessProbe:
      httpGet: {path: /readyz, port: http}
      periodSeconds: 5
      timeoutSeconds: 3
    resources: {{ toJson .Values.qdrant.resources }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    volumeMounts:
      - {name: data, mountPath: /qdrant/storage}
      - {name: snapshots, mountPath: /qdrant/snapshots}
      - {name: tmp, mountPath: /tmp}
volumes:
  - name: snapshots
    emptyDir: {sizeLimit: 4Gi}
  - name: tmp
    emptyDir: {medium: Memory, sizeLimit: 16Mi}
{{- end -}}
