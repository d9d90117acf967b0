{{- define "tower.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "tower.fullname" -}}
{{- $name := include "tower.name" . }}
{{- $whole := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- default $whole .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "tower.selector" -}}
app.kubernetes.io/name: tower
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tower.labels" -}}
{{ include "tower.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: proxy
app.kubernetes.io/part-of: tower
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "tower.serviceAccount" -}}
{{- default (.Values.serviceAccount.create | ternary (include "tower.fullname" .) "default") .Values.serviceAccount.name }}
{{- end }}

{{- define "tower.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "tower.claim" -}}
{{- default (printf "%s-state" (include "tower.fullname" .)) .Values.persistence.existingClaim }}
{{- end }}

{{- /* The ports of the Service as a YAML list: the front door, the unencrypted port, the clusters' ports. */}}
{{- define "tower.ports" -}}
- name: https
  port: {{ .Values.securePort }}
  targetPort: https
  appProtocol: https
  {{- if eq .Values.service.type "NodePort" }}
  nodePort: {{ .Values.securePort }}
  {{- end }}
{{- if .Values.plainPort }}
- name: http
  port: {{ .Values.plainPort }}
  targetPort: http
  {{- if eq .Values.service.type "NodePort" }}
  nodePort: {{ .Values.plainPort }}
  {{- end }}
{{- end }}
{{- range include "tower.listedPorts" . | fromJsonArray }}
- name: cluster-{{ . }}
  port: {{ . }}
  targetPort: {{ . }}
  {{- if eq $.Values.service.type "NodePort" }}
  nodePort: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "tower.clusterPorts" -}}
{{- default (eq .Values.store "kubernetes" | ternary "6000-7000" "none") .Values.clusterPorts }}
{{- end }}

{{- /* The labels of the pods: the Services of the clusters select app and app.kubernetes.io/name. */}}
{{- define "tower.podLabels" -}}
{{ include "tower.selector" . }}
app: tower
{{- end }}

{{- /* Annotations of an object that exists while Helm installs or upgrades the release; the argument is its weight. */}}
{{- define "tower.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- /* The labels of the pod that serves. */}}
{{- define "tower.serving" -}}
{{ include "tower.selector" . }}
{{- if eq .Values.store "kubernetes" }}
tower.kubesphere.io/leader: "true"
{{- end }}
{{- end }}

{{- /* The clusters' ports that the Service lists, as a JSON list. */}}
{{- define "tower.listedPorts" -}}
{{- $text := include "tower.clusterPorts" . }}
{{- if or (eq $text "none") (eq .Values.store "kubernetes") }}[]
{{- else }}
{{- $first := splitList "-" $text | first | int }}
{{- $last := splitList "-" $text | last | int }}
{{- if gt $first $last }}
{{- fail (printf "clusterPorts %s: the first port is above the last one: swap them" $text) }}
{{- end }}
{{- if ge (sub $last $first) 64 }}
{{- fail (printf "clusterPorts %s: more than 64 ports: give a shorter range, because the Service lists each port, or none" $text) }}
{{- end }}
{{- untilStep $first (int (add $last 1)) 1 | toJson }}
{{- end }}
{{- end }}

{{- /* The constraints of the values, or one node for each of several replicas if possible; a YAML list. */}}
{{- define "tower.spread" -}}
{{- $selector := dict "labelSelector" (dict "matchLabels" (include "tower.selector" . | fromYaml)) }}
{{- $nodes := dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" }}
{{- $constraints := list }}
{{- range default (gt (int .Values.replicas) 1 | ternary (list $nodes) list) .Values.topologySpreadConstraints }}
{{- $constraints = append $constraints (merge (dict) . $selector) }}
{{- end }}
{{- toYaml $constraints }}
{{- end }}

{{- /* Fails if values contradict each other; the schema checks each value alone. */}}
{{- define "tower.check" -}}
{{- if not .Values.publishServiceAddress }}
{{- fail "publishServiceAddress is missing: set the name or address that users and agents connect to" }}
{{- end }}
{{- if regexMatch "^[^:]*:[0-9]*$" .Values.publishServiceAddress }}
{{- fail (printf "publishServiceAddress %s: omit the port, which securePort sets" .Values.publishServiceAddress) }}
{{- end }}
{{- if and (gt (int .Values.replicas) 1) (ne .Values.store "kubernetes") }}
{{- fail (printf "replicas %v requires store kubernetes: SQLite has one writer" .Values.replicas) }}
{{- end }}
{{- if and (or .Values.kubesphere.compat .Values.kubesphere.ports) (ne .Values.store "kubernetes") }}
{{- fail "kubesphere.compat and kubesphere.ports require store kubernetes: set it, or omit them" }}
{{- end }}
{{- if and .Values.kubesphere.ports (not .Values.networkPolicy.enabled) }}
{{- fail (printf "kubesphere.ports %s requires networkPolicy.enabled: these ports do not authenticate clients" .Values.kubesphere.ports) }}
{{- end }}
{{- $ports := concat (list .Values.securePort) (include "tower.listedPorts" . | fromJsonArray) }}
{{- if .Values.plainPort }}{{ $ports = append $ports .Values.plainPort }}{{ end }}
{{- if .Values.metrics.enabled }}{{ $ports = append $ports .Values.metrics.port }}{{ end }}
{{- $seen := dict }}
{{- range $ports }}
{{- if hasKey $seen (toString .) }}
{{- fail (printf "port %v is used twice: securePort, plainPort, clusterPorts and metrics.port must differ" .) }}
{{- end }}
{{- $_ := set $seen (toString .) true }}
{{- end }}
{{- if eq .Values.service.type "NodePort" }}
{{- range omit $seen (.Values.metrics.enabled | ternary (toString .Values.metrics.port) "none") | keys | sortAlpha }}
{{- if or (lt (int .) 30000) (gt (int .) 32767) }}
{{- fail (printf "service.type NodePort: port %s is outside 30000-32767, and users connect to it on the nodes: change securePort, plainPort or clusterPorts" .) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.enabled) }}
{{- fail "metrics.serviceMonitor.enabled requires metrics.enabled: set both" }}
{{- end }}
{{- end }}
